"""Before a refusal the stored users are read once more, and many refusals share one read."""

from asyncio import get_running_loop
from collections.abc import Callable
from itertools import pairwise

import anyio
import pytest

from broker.coordinator.access.stored_access import StoredAccess
from broker.core.security.access_book import AccessBook
from broker.core.security.book_changes import with_user
from broker.edge.rpc.access.book_refresh import PAUSE_S, WAITING_MAX, BookRefresh
from broker.edge.rpc.access.gate import AccessGate
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused, StreamingCode

pytestmark = pytest.mark.asyncio


class Records:
    """AccessRecords over a memory store; each read of the epoch waits while the door is shut."""

    def __init__(self) -> None:
        self.stored = StoredAccess(MemoryMetaStore())
        self.begun_s: list[float] = []
        self.door = anyio.Event()
        self.door.set()
        self.failing = False

    async def epoch(self) -> int:
        self.begun_s.append(get_running_loop().time())
        await self.door.wait()
        if self.failing:
            raise Refused(StreamingCode.INNER, "the disk is gone")
        return await self.stored.epoch()

    async def read(self) -> AccessBook:
        return await self.stored.read()

    async def change(self, change: Callable[[AccessBook], AccessBook]) -> AccessBook:
        return await self.stored.change(change)

    async def until_begun(self, count: int) -> None:
        with anyio.fail_after(10):
            while len(self.begun_s) < count:
                await anyio.lowlevel.checkpoint()


class World:
    def __init__(self) -> None:
        self.records = Records()
        self.gate = AccessGate(lambda: 1)
        self.gate.adopt(AccessBook())
        self.refresh = BookRefresh(self.records, self.gate)

    async def add(self, name: str) -> None:
        await self.records.change(lambda it: with_user(it, name, [], replaces=False))

    def knows(self, name: str) -> bool:
        return name in self.gate.book.users


async def test_what_was_stored_before_is_known_afterwards() -> None:
    world = World()
    await world.add("ann")
    await world.refresh.newest()
    assert world.knows("ann")


async def test_a_thousand_at_once_share_two_reads() -> None:
    world = World()
    async with anyio.create_task_group() as tasks:
        for _ in range(1000):
            tasks.start_soon(world.refresh.newest)
    assert world.refresh.reads <= 2


async def test_reads_begin_no_closer_together_than_the_pause() -> None:
    world = World()
    for _ in range(4):
        await world.refresh.newest()
    begun = world.records.begun_s
    assert len(begun) == 4
    for earlier, later in pairwise(begun):
        assert later - earlier >= PAUSE_S * 0.99  # clocks of loops are rounded


async def test_who_comes_while_a_read_runs_waits_for_the_next_one() -> None:
    world = World()
    world.records.door = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.refresh.newest)
        await world.records.until_begun(1)
        tasks.start_soon(world.refresh.newest)
        world.records.door.set()
    assert world.refresh.reads == 2


async def test_a_cancelled_read_is_done_again_by_the_next_who_waits() -> None:
    world = World()
    await world.add("ann")
    world.records.door = anyio.Event()
    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def leaves() -> None:
            with scope:
                await world.refresh.newest()

        async with anyio.create_task_group() as first:
            first.start_soon(leaves)
            await world.records.until_begun(1)
            tasks.start_soon(world.refresh.newest)
            scope.cancel()
        world.records.door.set()
    assert world.knows("ann")


async def test_a_store_that_fails_changes_nothing_and_is_asked_once_for_all() -> None:
    world = World()
    await world.add("ann")
    world.records.failing = True
    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(world.refresh.newest)
    assert not world.knows("ann")
    assert world.refresh.reads <= 2


async def test_one_more_than_may_wait_is_not_kept_waiting() -> None:
    world = World()
    world.records.door = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(WAITING_MAX):
            tasks.start_soon(world.refresh.newest)
        await world.records.until_begun(1)
        await world.refresh.newest()
        world.records.door.set()
    assert world.refresh.reads <= 2
