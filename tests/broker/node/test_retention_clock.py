"""The age of segments is not what the clock of one node says alone."""

from dataclasses import replace

from actors.testing import run_seeded
from broker.model.retention.policy import Retention
from tests.broker.node.test_truncation import LIMITS, HoldsFake, fill, retaining


def test_a_node_whose_clock_is_ahead_of_the_ticks_removes_nothing_early() -> None:
    async def scenario() -> None:
        limits = replace(LIMITS, retention=Retention(age_ms_max=60_000))
        async with retaining(HoldsFake(), limits) as world:
            world.oracle.origin_ms = -3_600_000
            await world.assign()
            await fill(world)
            assert (await world.offsets()).first_id == 1, "nothing is a minute old"
            await world.clock.sleep(70)
            await fill(world)
            assert (await world.offsets()).first_id > 1, "by the ticks the first ones are"

    run_seeded(14, scenario)
