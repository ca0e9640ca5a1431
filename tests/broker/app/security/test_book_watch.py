"""A process follows the stored users: what it notices, and what it says when it cannot."""

from collections.abc import Callable

import pytest

from broker.app.security.book_watch import BLIND_S_MAX, BookWatch, Sight
from broker.coordinator.access.stored_access import StoredAccess
from broker.core.security.access_book import AccessBook
from broker.core.security.book_changes import with_user
from broker.edge.rpc.access.gate import AccessGate
from broker.meta.memory_store import MemoryMetaStore
from broker.model.failure import Refused, StreamingCode

pytestmark = pytest.mark.asyncio


class Records:
    """AccessRecords over a memory store, which fails while `failing` has words."""

    def __init__(self) -> None:
        self.failing = ""
        self.reads = 0
        self.stored = StoredAccess(MemoryMetaStore())
        self.before_read: Callable[[], object] = lambda: None

    async def epoch(self) -> int:
        if self.failing:
            raise Refused(StreamingCode.INNER, self.failing)
        return await self.stored.epoch()

    async def read(self) -> AccessBook:
        self.reads += 1
        found = await self.stored.read()
        self.before_read()
        return found

    async def change(self, change: Callable[[AccessBook], AccessBook]) -> AccessBook:
        return await self.stored.change(change)


class World:
    def __init__(self) -> None:
        self.now_s, self.now_ms = 100.0, 1
        self.records = Records()
        self.gate = AccessGate(lambda: self.now_ms)
        self.gate.adopt(AccessBook())
        self.sight = Sight(lambda: self.now_s, self.now_s)
        self.watch = BookWatch(self.records, self.gate, self.sight)

    async def add(self, name: str) -> AccessBook:
        return await self.records.change(lambda it: with_user(it, name, [], replaces=False))

    async def look(self) -> None:
        await self.watch.receive(())


async def test_a_change_is_noticed_and_without_one_nothing_is_read() -> None:
    world = World()
    await world.look()
    assert world.records.reads == 0
    await world.add("ann")
    await world.look()
    assert set(world.gate.book.users) == {"ann"}
    await world.look()
    assert world.records.reads == 1
    assert world.watch.statistics() == {"epoch": world.gate.book.epoch, "failures": 0}


async def test_a_book_that_was_changed_here_meanwhile_is_not_replaced_by_an_older_one() -> None:
    world = World()
    old = await world.add("ann")
    newer = AccessBook(epoch=old.epoch + 5)
    world.records.before_read = lambda: world.gate.adopt(newer)
    await world.look()
    assert world.gate.book is newer


async def test_a_silent_store_changes_nothing_and_is_reported_when_it_lasts() -> None:
    world = World()
    await world.add("ann")
    await world.look()
    world.records.failing = "the disk is gone"
    for _ in range(2):
        await world.look()
    assert set(world.gate.book.users) == {"ann"}
    assert world.sight.warnings() == []
    world.now_s += BLIND_S_MAX
    assert "not read for 30 s (the disk is gone); revocations are" in world.sight.warnings()[0]
    assert world.watch.statistics()["failures"] == 2
    world.records.failing = ""
    await world.look()
    assert world.sight.warnings() == []
