"""What a node does for a switch beside copying: it tells its end and what is in its way."""

from contextlib import suppress

from broker.core.cluster.wal_alter import SEGMENTED, AlterStage
from broker.ports.meta import MetaError
from tests.broker.app.switching.test_channel_switch import filled
from tests.broker.app.switching.wal_world import KAFKA


async def test_the_end_of_a_switch_is_told_again_until_that_succeeds() -> None:
    world, tries = await filled(SEGMENTED), 0

    async def settled() -> None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise MetaError("etcd does not answer")

    world.settled = settled
    async with world.process() as process:
        await process.start()
        await process.begin(KAFKA)
        goes_on = True
        while goes_on:
            with suppress(MetaError):
                goes_on = await process.look()
        assert tries >= 4
        found = await process.places.alter()
        assert found is not None
        assert found.stage is AlterStage.DONE
        last = tries
        assert not await process.look()
        assert tries == last
