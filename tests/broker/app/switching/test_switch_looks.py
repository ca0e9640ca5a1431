"""What a node does for a switch beside copying: it tells its end and what is in its way."""

from contextlib import suppress

import pytest

from broker.core.cluster.wal_alter import SEGMENTED, AlterStage
from broker.ports.meta import MetaError
from broker.ports.wal import Unsuitable
from tests.broker.app.switching.test_channel_switch import filled
from tests.broker.app.switching.test_switch_that_fails import RETENTION_CHANGED, refuse_openings
from tests.broker.app.switching.wal_world import KAFKA, NAMES


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


async def test_the_trouble_of_a_pchannel_that_has_left_is_told_by_its_owner_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await filled(SEGMENTED)
    refuse_openings(monkeypatch, Unsuitable(RETENTION_CHANGED))
    async with world.process() as one, world.process() as other:
        await one.start()
        await one.begin(KAFKA)
        assert await one.look()
        assert RETENTION_CHANGED in one.switch.warnings()[0]
        for name in NAMES:
            await one.logs.pop(name).close()  # the balancer moves it
            await other.open(name)
        assert await one.switch.look()
        await one.switch.advance()
        assert one.switch.warnings() == []
        assert await other.look()
        assert RETENTION_CHANGED in other.switch.warnings()[0]
