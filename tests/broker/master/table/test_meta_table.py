"""The table takes the end of a broadcast into the write of its change."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import pytest

from actors import ONE_FOR_ONE, ChildSpec, Ref, SupervisorSpec, System
from actors.testing import VirtualClock, run_seeded
from broker.master.ddl.ddl_callbacks import APPLY_S
from broker.master.table.apply_change import ChangeWriter
from broker.master.table.messages import ApplyChange
from broker.master.table.meta_table import END_BYTES_MAX, MetaTable
from broker.meta.memory_store import MemoryMetaStore
from broker.model.ids import CollectionId, PartitionId, TimeTick
from broker.model.master.ddl import CreateCollection, CreatePartition, DropCollection
from broker.model.master.table_change import AddCollection, AddPartition, RemoveCollection
from broker.ports.callbacks import EndRecord
from broker.ports.meta import Conflict
from tests.broker.coordinator.broadcast.broadcasting import FaultyStore
from tests.broker.master.simulated_master import SimulatedMaster

ID = CollectionId(100)
TICK = TimeTick(1)
CREATION = AddCollection("", "a", ID, (), (("_default", PartitionId(1)),), None, None)
RECORD = "broadcast/task/1"
ASK_S = 10.0


class CountedWrites(MemoryMetaStore):
    """Counts writes."""

    writes = 0

    async def write(self, *args: Any, **named: Any) -> int:
        self.writes += 1
        return await super().write(*args, **named)


def run(scenario: Callable[[CountedWrites, Ref[Any]], Awaitable[None]]) -> None:
    async def main() -> None:
        store = CountedWrites()
        table = ChildSpec("table", lambda: MetaTable(store))
        spec = SupervisorSpec("root", ONE_FOR_ONE, (table,))
        async with System(spec, clock=VirtualClock()) as system:
            await scenario(store, system.find("/root/table"))

    run_seeded(1, main)


def test_a_change_and_the_end_of_its_broadcast_are_one_write() -> None:
    async def scenario(store: CountedWrites, table: Ref[Any]) -> None:
        revision = await store.write({RECORD: b"landed"})
        store.writes = 0
        end = EndRecord(RECORD, b"ended", revision)
        stored = await table.ask(ApplyChange(CREATION, TICK, end), deadline_s=ASK_S)
        entry = await store.get(RECORD)
        assert entry is not None
        assert (entry.value, entry.revision, store.writes) == (b"ended", stored, 1)

    run(scenario)


def test_an_end_of_the_past_changes_nothing_and_hinders_nobody() -> None:
    async def scenario(store: CountedWrites, table: Ref[Any]) -> None:
        revision = await store.write({RECORD: b"changed since"})
        stale = EndRecord(RECORD, b"ended", revision - 1)
        with pytest.raises(Conflict):
            await table.ask(ApplyChange(CREATION, TICK, stale), deadline_s=ASK_S)
        entries = await store.list("", limit=10)
        assert [key for key, _ in entries] == [RECORD]
        assert await table.ask(ApplyChange(CREATION, TICK), deadline_s=ASK_S) is None

    run(scenario)


@pytest.mark.parametrize(
    ("change", "size"),
    [
        pytest.param(RemoveCollection(ID, "a", ""), 10, id="more-is-deleted-after-a-removal"),
        pytest.param(
            AddPartition(ID, "a", "", "p", PartitionId(2)), END_BYTES_MAX + 1, id="large-record"
        ),
    ],
)
def test_an_end_that_must_wait_is_left_to_the_caller(change: Any, size: int) -> None:
    async def scenario(store: CountedWrites, table: Ref[Any]) -> None:
        await ChangeWriter(store).apply(CREATION, TICK)
        revision = await store.write({RECORD: b"landed"})
        end = EndRecord(RECORD, b"e" * size, revision)
        assert await table.ask(ApplyChange(change, TICK, end), deadline_s=ASK_S) is None
        entry = await store.get(RECORD)
        assert entry is not None
        assert entry.value == b"landed"

    run(scenario)


def test_a_definition_costs_as_many_writes_as_a_broadcast_and_a_removal_one_more() -> None:
    async def main() -> None:
        made = SimulatedMaster()
        async with made.process():
            await made.change(CreateCollection("warm", 1))
            counts = []
            for ddl in (CreateCollection("a", 1), CreatePartition("a", "p"), DropCollection("a")):
                before = revision(made)
                await made.change(ddl)
                counts.append(revision(made) - before)
        recorded, landed, applied, ended = 1, 1, 1, 1
        assert counts[0] == counts[1] == recorded + landed + applied
        assert counts[2] == recorded + landed + applied + ended + 1, "and its partitions"

    run_seeded(1, main)


class SlowStore(FaultyStore):
    """One write of a collection takes so long, as when a disk stands still."""

    stall_s = 0.0

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        if self.stall_s and any(it.startswith("collection/") for it in puts):
            stall_s, self.stall_s = self.stall_s, 0.0
            await anyio.sleep(stall_s)
        return await super().write(puts, deletes=deletes, expect=expect)


def test_a_change_that_is_written_too_late_ends_its_broadcast_and_restarts_no_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        made = SimulatedMaster()
        store = made.store = SlowStore(made.faults)
        async with made.process():
            await made.change(CreateCollection("warm", 1))
            store.stall_s = APPLY_S + 10.0
            async with anyio.create_task_group() as tasks:
                for name in "abc":
                    tasks.start_soon(made.once, CreateCollection(name, 1))
            assert not store.stall_s
            assert [it.name for it in await made.table.page("", "", 10)] == [*"abc", "warm"]
        assert not [it for it in caplog.messages if "restarts in" in it]

    run_seeded(1, main)


def revision(made: SimulatedMaster) -> int:
    """Of the newest write."""
    return made.store._revision
