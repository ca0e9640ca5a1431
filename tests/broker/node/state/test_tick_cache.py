"""The shared tick cache under several takers on a seeded loop."""

import asyncio
import random
from itertools import pairwise

import pytest

from actors.testing import VirtualClock, run_seeded
from broker.model.failure import Refused
from broker.model.ids import TimeTick
from broker.node.state.tick_cache import RESERVED_COUNT, TickCache
from broker.ports.ticks import RESERVE_COUNT_MAX
from tests.broker.node.world import OracleFake


@pytest.mark.parametrize("seed", range(20))
def test_ticks_are_contiguous_unique_and_grow_for_every_taker(seed: int) -> None:
    async def scenario() -> None:
        rng, clock = random.Random(seed), VirtualClock()
        cache = TickCache(OracleFake(clock, lambda: rng.random() * 0.02))
        given: list[range] = []

        async def taker() -> None:
            newest = 0
            for _ in range(50):
                count = rng.choice((1, 7, RESERVED_COUNT, RESERVE_COUNT_MAX))
                first = await cache.take(count, clock.monotonic_s())
                assert first > newest
                newest = first + count - 1
                given.append(range(first, newest + 1))
                if rng.random() < 0.1:
                    cache.drop()
                await asyncio.sleep(rng.random() * 0.03)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(taker())
        given.sort(key=lambda ticks: ticks.start)
        for one, other in pairwise(given):
            assert one.stop <= other.start

    run_seeded(seed, scenario)


def test_an_old_range_is_dropped_so_that_ticks_carry_the_wall_time() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        cache = TickCache(OracleFake(clock))
        first = await cache.take(1, clock.monotonic_s())
        assert await cache.take(1, clock.monotonic_s()) == first + 1
        await clock.sleep(0.06)
        later = await cache.take(1, clock.monotonic_s())
        assert later >> 18 == (first >> 18) + 60

    run_seeded(1, scenario)


def test_a_range_that_was_asked_for_before_a_pchannel_opened_is_not_used_after_it() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        oracle = OracleFake(clock, lambda: 1.0)
        cache = TickCache(oracle)
        async with asyncio.TaskGroup() as tasks:
            early = tasks.create_task(cache.take(1, clock.monotonic_s()))
            await clock.sleep(0.5)
            promised = (await oracle.reserve(1)).first  # by an owner that dies with it
            cache.drop()
            late = tasks.create_task(cache.take(1, clock.monotonic_s()))
        assert late.result() > promised
        assert early.result() != late.result()

    run_seeded(4, scenario)


def test_all_tasks_waiting_for_an_unavailable_oracle_fail_at_once() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        oracle = OracleFake(clock, lambda: 2.0)
        oracle.broken = True
        cache = TickCache(oracle)
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(refused(cache, clock)) for _ in range(8)]
        assert clock.monotonic_s() < 3.0, "not one after the other"
        assert all(it.result() for it in asked)
        oracle.broken = False
        assert await cache.take(1, clock.monotonic_s()) > 0

    run_seeded(5, scenario)


async def refused(cache: TickCache, clock: VirtualClock) -> bool:
    try:
        await cache.take(1, clock.monotonic_s())
    except Refused:
        return True
    return False


def test_a_barrier_the_oracle_knows_is_passed_and_one_it_does_not_know_is_not() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        oracle = OracleFake(clock)
        cache = TickCache(oracle)
        await cache.take(1, clock.monotonic_s())
        known = (await oracle.reserve(1)).first
        assert await cache.take(1, clock.monotonic_s(), known) > known
        unknown = TimeTick(known + (1 << 30))
        assert await cache.take(1, clock.monotonic_s(), unknown) <= unknown

    run_seeded(2, scenario)


def test_an_unavailable_oracle_is_reported_to_the_caller() -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        oracle = OracleFake(clock)
        oracle.broken = True
        cache = TickCache(oracle)
        with pytest.raises(Refused):
            await cache.take(1, clock.monotonic_s())
        oracle.broken = False
        assert await cache.take(1, clock.monotonic_s()) > 0

    run_seeded(3, scenario)
