"""The pace of a benchmark: messages leave when they are due, however fine the steps are."""

import time
from itertools import pairwise

from benchmark.load.pace import Pace


async def test_nothing_is_offered_before_it_is_due() -> None:
    early_s: list[float] = []

    async def offer(_count: int, due_s: float) -> None:
        early_s.append(due_s - time.perf_counter())

    await Pace(rate=2_000, seconds=0.02).keep(offer)
    assert len(early_s) == 20
    assert max(early_s) <= 0


async def test_steps_that_are_late_are_offered_with_the_time_at_which_they_were_due() -> None:
    due: list[float] = []

    async def offer(count: int, due_s: float) -> None:
        assert count == 2
        due.append(due_s)
        if len(due) == 1:
            spend_s(0.005)

    await Pace(rate=2_000, seconds=0.01).keep(offer)
    gaps_s = [later - earlier for earlier, later in pairwise(due)]
    assert [round(gap_s * 1000) for gap_s in gaps_s] == [1] * 9


def spend_s(seconds: float) -> None:
    """Without a turn of the loop."""
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        pass
