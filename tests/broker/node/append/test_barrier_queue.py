"""Appends that wait for ticks of a foreign oracle, which is ahead of ours."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from actors.testing import VirtualClock, run_seeded
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TimeTick
from broker.node.append.barrier_queue import BarrierQueue
from broker.node.state.oracle_view import OracleView
from broker.node.state.tick_cache import TickCache
from tests.broker.node.world import OracleFake

LIMIT_S = 10.0


class Stream:
    """A queue, its oracle, and what was released and refused when."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.clock = VirtualClock()
        self.oracle = OracleFake(self.clock)
        self.ticks = TickCache(self.oracle)
        self.released: list[str] = []
        self.released_ms: dict[str, int] = {}
        self.refused: dict[str, tuple[Refusal, float]] = {}
        self.hold = asyncio.Event()
        self.hold.set()
        view = OracleView(self.ticks, self.clock, limit_s)
        self.queue = BarrierQueue[str](view, self._release, self._refuse)

    def ahead(self, by_s: float) -> TimeTick:
        """A tick of an oracle whose clock is so far ahead."""
        return TimeTick((self.clock.wall_ms() + round(by_s * 1000)) << 18)

    async def _release(self, item: str) -> None:
        await self.hold.wait()
        self.released_ms[item] = self.clock.wall_ms()
        self.released.append(item)

    def _refuse(self, item: str, refusal: Refusal) -> None:
        self.refused[item] = (refusal, self.clock.monotonic_s())


@asynccontextmanager
async def running(stream: Stream) -> AsyncIterator[Stream]:
    task = asyncio.get_running_loop().create_task(stream.queue.run())
    try:
        yield stream
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("seed", range(20))
def test_each_append_is_released_once_the_oracle_is_above_its_tick_and_not_before(
    seed: int,
) -> None:
    async def scenario() -> None:
        rng, stream = random.Random(seed), Stream()
        barriers: dict[str, TimeTick] = {}
        async with running(stream):
            for number in range(60):
                name = str(number)
                barriers[name] = stream.ahead(rng.choice((-1.0, 0.0, 0.1, 0.3, 2.0, 9.0)))
                stream.queue.put(barriers[name], name)
                await stream.clock.sleep(rng.random() * 0.1)
            await stream.clock.sleep(LIMIT_S)
        assert stream.refused == {}
        assert sorted(stream.released) == sorted(barriers)
        for name, at_ms in stream.released_ms.items():
            assert at_ms >= barriers[name] >> 18
        assert all(stream.ticks.passed(each) for each in barriers.values())

    run_seeded(seed, scenario)


def test_a_far_tick_holds_up_no_nearer_one_and_equal_ones_keep_their_order() -> None:
    async def scenario() -> None:
        stream = Stream()
        near, far = stream.ahead(0.1), stream.ahead(5.0)
        async with running(stream):
            for name, barrier in (("far", far), ("a", near), ("b", near), ("c", near)):
                stream.queue.put(barrier, name)
            await stream.clock.sleep(0.2)
            assert stream.released == ["a", "b", "c"]
            assert len(stream.queue) == 1

    run_seeded(1, scenario)


@pytest.mark.parametrize(("within_s", "ahead_s"), [(None, 10.1), (1.0, 1.1), (60.0, 10.1)])
def test_a_tick_that_cannot_be_reached_in_time_is_refused_at_once(
    within_s: float | None, ahead_s: float
) -> None:
    async def scenario() -> None:
        stream = Stream()
        began_s = stream.clock.monotonic_s()
        async with running(stream):
            stream.queue.put(stream.ahead(ahead_s), "it", within_s)
            await stream.clock.sleep(0.01)
            refusal, at_s = stream.refused["it"]
        assert refusal.code is StreamingCode.UNRECOVERABLE
        assert at_s - began_s < 0.01
        assert stream.released == []

    run_seeded(1, scenario)


def test_an_oracle_that_stands_still_ends_the_wait_at_its_deadline() -> None:
    async def scenario() -> None:
        stream = Stream()
        began_s = stream.clock.monotonic_s()
        async with running(stream):
            stream.queue.put(stream.ahead(1.0), "it", 3.0)
            await stream.clock.sleep(0.5)
            stream.oracle.origin_ms = -3_600_000  # its machine's clock is set back
            await stream.clock.sleep(10.0)
        refusal, at_s = stream.refused["it"]
        assert refusal.code is StreamingCode.INNER
        assert at_s - began_s == pytest.approx(3.0, abs=0.01)
        assert stream.released == []

    run_seeded(1, scenario)


def test_an_oracle_that_is_away_is_asked_again_until_the_deadline() -> None:
    async def scenario() -> None:
        stream = Stream()
        stream.oracle.broken = True
        async with running(stream):
            stream.queue.put(stream.ahead(0.1), "in time")
            stream.queue.put(stream.ahead(0.1), "too short", 1.0)
            await stream.clock.sleep(2.0)
            stream.oracle.broken = False
            await stream.clock.sleep(0.5)
        assert stream.released == ["in time"]
        assert stream.refused["too short"][0].code is StreamingCode.INNER

    run_seeded(1, scenario)


def test_closing_refuses_what_waits_and_what_comes_later() -> None:
    async def scenario() -> None:
        stream = Stream()
        gone = Refusal(StreamingCode.ON_SHUTDOWN, "the channel left")
        async with running(stream):
            stream.queue.put(stream.ahead(5.0), "far")
            await stream.clock.sleep(0.1)
            stream.queue.put(stream.ahead(1.0), "new")
            stream.queue.close(gone)
            stream.queue.put(stream.ahead(1.0), "late")
            assert {name: it for name, (it, _) in stream.refused.items()} == dict.fromkeys(
                ("far", "new", "late"), gone
            )
            await stream.clock.sleep(20.0)
        assert stream.released == []

    run_seeded(1, scenario)


@pytest.mark.parametrize("at_s", [0.0, 0.05, 0.3])
def test_a_wait_that_is_cancelled_releases_nothing_twice(at_s: float) -> None:
    async def scenario() -> None:
        stream = Stream()
        stream.hold.clear()
        async with running(stream):
            for name in ("a", "b"):
                stream.queue.put(stream.ahead(0.1), name)
            await stream.clock.sleep(at_s)
        stream.hold.set()
        async with running(stream):
            await stream.clock.sleep(1.0)
        assert stream.released in (["a", "b"], ["b"])

    run_seeded(1, scenario)
