"""Cached numbers: no overlap, no overtaking, errors for all who wait, cancellation, close."""

from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random

import anyio
import pytest
from anyio.abc import TaskGroup

from actors.testing import run_seeded
from broker.client.errors import BadTarget, ClosedClient, ServerFailed
from broker.client.master.cached_allocator import COUNT_MAX, WAITING_MAX, CachedAllocator


class Source:
    """A server: consecutive numbers, slow, failing while `error` is set; `asked`: each request."""

    def __init__(self, delay_s: float = 0.01) -> None:
        self.next = 1_000
        self.delay_s = delay_s
        self.asked: list[int] = []
        self.error: Exception | None = None

    async def fetch(self, count: int) -> int:
        self.asked.append(count)
        await anyio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        first = self.next
        self.next += count + 7  # others take numbers, too
        return first


def usable() -> None:
    return None


def allocator(source: Source, tasks: TaskGroup, **given: float) -> CachedAllocator:
    batch, age = int(given.get("batch", 100)), given.get("age_s_max")
    return CachedAllocator(source.fetch, tasks, usable, batch=batch, age_s_max=age, what="ids")


def seeded(test: Callable[[Source, TaskGroup], Awaitable[None]], seed: int = 1) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            await test(Source(), tasks)
            tasks.cancel_scope.cancel()

    run_seeded(seed, main)


def test_one_fetch_serves_many_requests_without_overlap() -> None:
    async def scenario(source: Source, tasks: TaskGroup) -> None:
        ids = allocator(source, tasks)
        found = [await ids.alloc(10) for _ in range(10)]
        assert found == list(range(1_000, 1_100, 10))
        assert source.asked == [100]
        # 1 is left out: the rest of a batch is dropped when a request does not fit.
        assert await ids.alloc(99) == 1_107
        assert await ids.alloc(2) == 1_214
        assert ids.fetches == 3

    seeded(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_ranges_of_many_tasks_never_overlap_and_each_task_sees_them_grow(seed: int) -> None:
    async def scenario(source: Source, tasks: TaskGroup) -> None:
        ids, random, taken = allocator(source, tasks, age_s_max=0.05), Random(seed), []

        async def take() -> None:
            newest = 0
            for _ in range(40):
                count = random.choice([1, 1, 2, 30, 100, 250])
                first = await ids.alloc(count)
                assert first > newest
                newest = first + count - 1
                taken.append((first, first + count))
                await anyio.sleep(random.random() / 50)

        async with anyio.create_task_group() as takers:
            for _ in range(5):
                takers.start_soon(take)
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(taken)))

    seeded(scenario, seed)


def test_a_large_request_is_not_overtaken_and_one_fetch_is_large_enough_for_all() -> None:
    async def scenario(source: Source, tasks: TaskGroup) -> None:
        ids, order = allocator(source, tasks), []

        async def take(name: str, count: int) -> None:
            await ids.alloc(count)
            order.append(name)

        await ids.alloc(90)
        async with anyio.create_task_group() as takers:
            takers.start_soon(take, "large", 5_000)
            await anyio.sleep(0.001)
            takers.start_soon(take, "small", 3)  # ten are left, but it came later
            await anyio.sleep(0.001)
            takers.start_soon(take, "huge", COUNT_MAX)
        assert order == ["large", "small", "huge"]
        # The second fetch was asked for before the others had come.
        assert source.asked == [100, 5_000, COUNT_MAX, COUNT_MAX]

    seeded(scenario)


def test_timestamps_are_never_older_than_their_age() -> None:
    async def scenario(source: Source, tasks: TaskGroup) -> None:
        timestamps = allocator(source, tasks, age_s_max=1.0)
        assert await timestamps.alloc() == 1_000
        await anyio.sleep(0.98)  # and 0.01 for the fetch, which counts
        assert await timestamps.alloc() == 1_001
        await anyio.sleep(0.01)
        assert await timestamps.alloc() == 1_107

    seeded(scenario)


def test_a_failed_fetch_fails_all_that_wait_with_its_error_and_the_next_one_is_tried() -> None:
    async def scenario(source: Source, tasks: TaskGroup) -> None:
        ids, errors = allocator(source, tasks), []
        source.error = ServerFailed("disk full")

        async def take(count: int) -> None:
            with pytest.raises(ServerFailed) as caught:
                await ids.alloc(count)
            errors.append(caught.value)

        async with anyio.create_task_group() as takers:
            for count in (1, 200, 3):
                takers.start_soon(take, count)
        assert errors == [source.error] * 3
        assert len(source.asked) == 1
        source.error = None
        assert await ids.alloc() == 1_000

    seeded(scenario)


def test_a_cancelled_request_fails_nobody_else() -> None:
    async def scenario(source: Source, tasks: TaskGroup) -> None:
        ids, found = allocator(source, tasks), []

        async def take() -> None:
            found.append(await ids.alloc(2))

        async with anyio.create_task_group() as takers:
            with anyio.move_on_after(0.005) as hasty:
                await ids.alloc(50)
            assert hasty.cancelled_caught
            takers.start_soon(take)
        assert found == [1_000]  # the cancelled one took nothing
        with anyio.move_on_after(0):
            await ids.alloc(2)
        assert await ids.alloc(2) == 1_004

    seeded(scenario)


def test_a_client_that_closes_fails_who_waits() -> None:
    async def main() -> None:
        source, errors = Source(delay_s=60.0), list[Exception]()

        async def take(ids: CachedAllocator) -> None:
            with pytest.raises(ClosedClient) as caught:
                await ids.alloc()
            errors.append(caught.value)

        async with anyio.create_task_group() as program, anyio.create_task_group() as tasks:
            ids = allocator(source, tasks)
            for _ in range(3):
                program.start_soon(take, ids)
            await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        assert len(errors) == 3

    run_seeded(1, main)


def test_a_closed_client_takes_no_request() -> None:
    async def main() -> None:
        def closed() -> None:
            raise ClosedClient("the client is closed")

        async with anyio.create_task_group() as tasks:
            ids = CachedAllocator(Source().fetch, tasks, closed, batch=10)
            with pytest.raises(ClosedClient):
                await ids.alloc()

    run_seeded(1, main)


@pytest.mark.parametrize("count", [0, -1, 65_537])
def test_a_bad_number_is_refused_before_anything_is_asked(count: int) -> None:
    async def scenario(source: Source, tasks: TaskGroup) -> None:
        with pytest.raises(BadTarget, match=f"number of ids must be 1 to 65536, not {count}"):
            await allocator(source, tasks).alloc(count)
        assert source.asked == []

    seeded(scenario)


def test_only_so_many_requests_may_wait() -> None:
    async def scenario(source: Source, tasks: TaskGroup) -> None:
        ids, source.delay_s = allocator(source, tasks), 60.0
        async with anyio.create_task_group() as takers:
            for _ in range(WAITING_MAX):
                takers.start_soon(ids.alloc)
            await anyio.sleep(1.0)
            with pytest.raises(ServerFailed, match="10000 requests for ids wait") as caught:
                await ids.alloc()
            assert caught.value.retriable
            takers.cancel_scope.cancel()

    seeded(scenario)


def test_a_forgotten_batch_is_not_used() -> None:
    async def scenario(source: Source, tasks: TaskGroup) -> None:
        ids = allocator(source, tasks)
        assert await ids.alloc() == 1_000
        ids.forget()
        assert await ids.alloc() == 1_107

    seeded(scenario)
