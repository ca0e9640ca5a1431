"""A node notices that the leading coordinator has another time, and nothing else."""

from collections.abc import Awaitable, Callable

import pytest

from actors.testing import VirtualClock, run_seeded
from broker.model.failure import Refused
from broker.ports.ticks import TickRange
from broker.remote.clock_watch import FRESH_S, ClockWatch
from tests.broker.node.world import OracleFake

SCENARIO = Callable[[ClockWatch, OracleFake, VirtualClock, VirtualClock], Awaitable[None]]


def seeded(scenario: SCENARIO, answer_s: float = 0.001) -> None:
    """Run it with a watch, its oracle, and the clocks of the leader and of the node."""

    async def main() -> None:
        leader, own = VirtualClock(), VirtualClock()
        oracle = OracleFake(leader, lambda: answer_s)
        await scenario(ClockWatch(oracle, own), oracle, leader, own)

    run_seeded(1, main)


@pytest.mark.parametrize(
    ("leader_ms", "own_ms", "told"),
    [(600_000, 0, "600.0 s ahead of"), (0, 600_000, "600.0 s behind")],
)
def test_a_clock_that_is_ten_minutes_off_is_told_of_until_it_is_right_again(
    leader_ms: int, own_ms: int, told: str
) -> None:
    async def scenario(
        watch: ClockWatch, _: OracleFake, leader: VirtualClock, own: VirtualClock
    ) -> None:
        await watch.reserve(1)
        assert watch.warnings() == []
        leader.shift_wall(leader_ms)
        own.shift_wall(own_ms)
        (warning,) = await after_a_tick(watch)
        assert f"{told} the clock of this node's host" in warning
        own.shift_wall(leader_ms - own_ms)
        assert await after_a_tick(watch) == []

    seeded(scenario)


async def after_a_tick(watch: ClockWatch) -> list[str]:
    await watch.reserve(1)
    return watch.warnings()


def test_a_node_without_ticks_tells_nothing_however_long_it_has_none() -> None:
    async def scenario(
        watch: ClockWatch, oracle: OracleFake, _: VirtualClock, own: VirtualClock
    ) -> None:
        assert watch.warnings() == []
        await watch.reserve(1)
        oracle.broken = True
        await own.sleep(3_000.0)
        with pytest.raises(Refused):
            await watch.reserve(1)
        assert watch.warnings() == []

    seeded(scenario)


def test_what_was_found_long_ago_is_not_told() -> None:
    async def scenario(
        watch: ClockWatch, _: OracleFake, leader: VirtualClock, own: VirtualClock
    ) -> None:
        leader.shift_wall(600_000)
        assert await after_a_tick(watch)
        await own.sleep(FRESH_S + 1)
        assert watch.warnings() == []

    seeded(scenario)


class LateAnswers(OracleFake):
    """Its answers take a minute, as those to a process that is paused meanwhile."""

    async def reserve(self, count: int) -> TickRange:
        given = await super().reserve(count)
        await self._clock.sleep(60.0)
        return given


@pytest.mark.parametrize("late", [False, True])
def test_a_pause_before_or_after_the_tick_was_handed_out_is_no_difference(late: bool) -> None:
    async def scenario(
        watch: ClockWatch, _: OracleFake, leader: VirtualClock, own: VirtualClock
    ) -> None:
        if late:
            watch = ClockWatch(LateAnswers(leader), own)
        assert await after_a_tick(watch) == []

    seeded(scenario, answer_s=60.0)


def test_the_ticks_are_those_of_the_source() -> None:
    async def scenario(
        watch: ClockWatch, oracle: OracleFake, _: VirtualClock, __: VirtualClock
    ) -> None:
        given = await watch.reserve(7)
        assert given.count == 7
        assert given.first + 7 == oracle.next

    seeded(scenario)
