"""Ids are never given twice, whatever the clock does and whenever the process dies."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.time import tso
from broker.rocksmq import BadQueueArgument, RocksMQFull
from broker.rocksmq.queue_ids import StoredIds


class Durable:
    """A bound that survives, and a clock that jumps."""

    def __init__(self) -> None:
        self.bound_ms, self.now_ms = 0, 1_000_000
        self.saves, self.full = 0, False

    async def save(self, bound_ms: int) -> None:
        await asyncio.sleep(0)
        if self.full:
            raise RocksMQFull("the disk is full")
        assert bound_ms > self.bound_ms
        self.bound_ms, self.saves = bound_ms, self.saves + 1

    def opened(self) -> StoredIds:
        """What a process begins with."""
        saved_ms = self.bound_ms
        self.bound_ms = tso.first_bound(saved_ms, self.now_ms)
        window = tso.started(saved_ms, self.bound_ms)
        return StoredIds(window, self.save, lambda: self.now_ms)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("alloc"), st.integers(1, 65_536)),
        st.tuples(st.just("take"), st.integers(1, 1000)),
        st.tuples(st.just("clock"), st.integers(-10_000, 10_000)),
        st.tuples(st.just("die"), st.just(0)),
        st.tuples(st.just("update"), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_no_id_is_given_twice_whatever_the_clock_does_and_whenever_the_process_dies(
    steps: list[tuple[str, int]],
) -> None:
    async def live() -> None:
        durable = Durable()
        ids, newest = durable.opened(), 0
        for kind, amount in steps:
            if kind == "alloc":
                start, end = await ids.alloc(amount)
                assert end == start + amount
                assert start > newest
                newest = end - 1
            elif kind == "take":
                first = ids.take(amount)
                if first is not None:
                    assert first > newest
                    newest = first + amount - 1
            elif kind == "clock":
                durable.now_ms = max(1, durable.now_ms + amount)
            elif kind == "update":
                await ids.update_id()
            else:
                ids = durable.opened()
            assert newest < tso.compose(durable.bound_ms, 0), "the bound is durable before"

    asyncio.run(live())


async def test_many_at_once_get_ranges_that_do_not_overlap() -> None:
    durable = Durable()
    ids = durable.opened()
    ranges = await asyncio.gather(*(ids.alloc(50_000) for _ in range(200)))
    every = sorted(ranges)
    assert all(end <= start for (_, end), (start, _) in pairwise(every))
    assert durable.saves < 10


async def test_an_update_extends_the_window_before_it_is_needed() -> None:
    durable = Durable()
    ids = durable.opened()
    await ids.update_id()
    assert durable.saves == 0, "most of the window is left"
    durable.now_ms += tso.WINDOW_MS
    await ids.update_id()
    assert durable.saves == 1
    assert ids.take(10) is not None
    assert durable.saves == 1


async def test_without_a_durable_bound_no_ids_are_given_out_until_it_can_be_saved() -> None:
    durable = Durable()
    ids = durable.opened()
    durable.now_ms += 2 * tso.WINDOW_MS
    durable.full = True
    assert ids.take(1) is None
    with pytest.raises(RocksMQFull):
        await ids.alloc_one()
    durable.full = False
    assert await ids.alloc_one() == tso.compose(durable.now_ms, 0)


@pytest.mark.parametrize("count", [-1, 0, 65_537])
async def test_a_bad_number_of_ids_is_refused(count: int) -> None:
    with pytest.raises(BadQueueArgument, match=str(count)):
        await Durable().opened().alloc(count)
