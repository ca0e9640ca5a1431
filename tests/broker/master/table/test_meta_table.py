"""The table takes the end of a broadcast into the write of its change."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import pytest

from actors import ONE_FOR_ONE, ChildSpec, Ref, SupervisorSpec, System
from actors.testing import VirtualClock, run_seeded
from broker.master.ddl.ddl_callbacks import (
    APPLY_S,
    BODY_BYTES_MAX,
    END_BYTES_MAX,
    ddl_callbacks,
)
from broker.master.table.messages import ApplyChange
from broker.master.table.meta_table import MetaTable
from broker.meta.memory_store import MemoryMetaStore
from broker.model.broadcast import Broadcast
from broker.model.ids import CollectionId, PartitionId, TimeTick
from broker.model.master.ddl import CreateCollection, CreatePartition, DropCollection
from broker.model.master.table_change import AddCollection, AddPartition, RemoveCollection
from broker.ports.callbacks import EndRecord, EndsBroadcast
from broker.ports.meta import Conflict
from tests.broker.coordinator.broadcast.broadcasting import FaultyStore
from tests.broker.master.simulated_master import CONTROL, MESSAGES, SimulatedMaster

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


async def never(_: object) -> None:
    raise AssertionError("nobody is asked")


PARTITION = AddPartition(ID, "a", "", "p", PartitionId(2))
REMOVAL = RemoveCollection(ID, "a", "")


@pytest.mark.parametrize(
    ("change", "end_bytes", "body_bytes", "ends"),
    [
        pytest.param(PARTITION, END_BYTES_MAX, BODY_BYTES_MAX, True, id="small"),
        pytest.param(PARTITION, END_BYTES_MAX + 1, 10, False, id="large-record"),
        pytest.param(PARTITION, 10, BODY_BYTES_MAX + 1, False, id="large-body"),
        pytest.param(REMOVAL, 10, 10, False, id="more-is-deleted-after-a-removal"),
    ],
)
def test_a_broadcast_ends_with_its_change_if_one_write_takes_all(
    change: Any, end_bytes: int, body_bytes: int, ends: bool
) -> None:
    sent = MESSAGES.encode(change)
    callback = ddl_callbacks({}, MESSAGES, never, "table")[sent.type]  # type: ignore[arg-type]
    assert isinstance(callback, EndsBroadcast)
    broadcast = Broadcast(sent.type, (CONTROL,), (), b"b" * body_bytes, body_bytes, "key", "")
    assert callback.ends(broadcast, EndRecord(RECORD, b"e" * end_bytes, 1)) is ends


def test_a_definition_costs_two_writes_and_a_removal_three_more() -> None:
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
        assert counts[0] == counts[1] == recorded + applied, "with where it landed, and its end"
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
        # The table does, once: its late write meets that of a task which has given up waiting.
        restarted = [it.split()[0] for it in caplog.messages if "restarts in" in it]
        assert restarted in ([], ["/root/master/table"])

    run_seeded(1, main)


def revision(made: SimulatedMaster) -> int:
    """Of the newest write."""
    return made.store._revision
