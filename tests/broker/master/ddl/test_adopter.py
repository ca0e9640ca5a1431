"""Collections of an earlier release, which are announced once whatever happens meanwhile."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import anyio
import pytest

from actors import Actor, ChildSpec, Envelope, Ref
from actors.testing import run_seeded
from broker.codec.milvus_schemas import table_schema
from broker.coordinator.assignment.messages import NextAssignment
from broker.coordinator.broadcast.broadcast_records import TASK_PREFIX
from broker.coordinator.catalog.collection_records import ADOPTED_KEY, ensure_indexes
from broker.coordinator.json_records import encode_fields
from broker.coordinator.records import COLLECTION_ID_KEY, collection_key, encode_number
from broker.core.cluster.assignment import BROADCAST_VERSION
from broker.master.ddl.adopter import AT_ONCE, Adopter, AdoptionParts
from broker.model.broadcast import ADOPTION_KEY, BroadcastCopy
from broker.model.channel import Assignment, AssignmentVersion
from broker.model.collection import RowSchema
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import CollectionId, PChannelName
from broker.model.master.ddl import (
    ChangeSchema,
    CreateAlias,
    CreateCollection,
    CreateIndex,
    CreatePartition,
    DropCollection,
)
from broker.model.master.fields import Field, FieldType, TableSchema
from broker.model.master.table_change import AddCollection, AlterSchema
from broker.model.message import Appended
from tests.broker.coordinator.broadcast.broadcasting import LOCKS, TASKS, Faults
from tests.broker.master.simulated_master import CONTROL, IDS, PCHANNELS, TABLE, SimulatedMaster

ASSIGNER = "/root/master/assigner"
ADOPTER = "/root/master/adopter"
NONE = CollectionId(0)
ARROW = RowSchema(b"arrow", (1,))
WIDER = RowSchema(b"wider", (1, 2))
FIELD = Field(100, "id", FieldType.INT64)
OLD = 40
"""Collections of an earlier release; every third one has a schema."""


async def fields_of(name: str, rows: RowSchema) -> TableSchema:
    return table_schema(name, [FIELD], version=rows.version - 1)


class Versions(Actor[NextAssignment]):
    """An assigner that knows a streaming version and nothing else."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    async def receive(self, batch: Sequence[Envelope[NextAssignment]]) -> None:
        for envelope in batch:
            version = self._cluster.version
            envelope.reply(Assignment(AssignmentVersion(1, 1), (), PCHANNELS[0], version))


class Cluster:
    """What the adopter depends on beside the master."""

    def __init__(self, faults: Faults | None = None, seed: int = 1) -> None:
        self.version = BROADCAST_VERSION
        self.served = set(PCHANNELS)
        self.fields: Callable[[str, RowSchema], Awaitable[TableSchema]] = fields_of
        self.master = SimulatedMaster(faults or Faults(), seed)
        parts = AdoptionParts(
            self.master.store, self._find, LOCKS, ASSIGNER, self._owners, CONTROL, self._fields
        )
        self.master.others = (
            ChildSpec("assigner", lambda: Versions(self)),
            ChildSpec("adopter", lambda: Adopter(parts), patient=True),
        )

    def statistics(self) -> Mapping[str, Any]:
        assert self.master.system is not None
        found = [it for it in self.master.system.statistics() if it.path == ADOPTER]
        return found[0].extra if found else {}

    async def until(self, what: str) -> None:
        """Wait until a figure of the adopter is not 0."""
        for _ in range(20_000):
            if self.statistics().get(what):
                return
            await anyio.sleep(0.1)
        raise AssertionError(f"{what} stays 0: {self.statistics()}")

    async def until_announced(self, count: int) -> None:
        for _ in range(20_000):
            if len(self.announced()) >= count:
                return
            await anyio.sleep(0.01)
        raise AssertionError(f"{len(self.announced())} of {count} are announced")

    def announced(self) -> Counter[CollectionId]:
        """How often each collection was announced on the control channel."""
        changes = [it for it, _ in self.master.logs.changes()]
        return Counter(it.id for it in changes if isinstance(it, AddCollection))

    def _find(self, path: str) -> Ref[Any]:
        assert self.master.system is not None
        return self.master.system.find(path)

    async def _owners(self) -> Mapping[PChannelName, Any]:
        return dict.fromkeys(self.served)

    async def _fields(self, name: str, rows: RowSchema) -> TableSchema:
        return await self.fields(name, rows)


def old_id(number: int) -> CollectionId:
    return CollectionId(100 + number)


def old_name(number: int) -> str:
    return f"old{number:03}"


def has_rows(number: int) -> bool:
    return number % 3 == 0


async def with_old(cluster: Cluster, numbers: range = range(OLD)) -> None:
    """The records as the release before the master wrote them."""
    store = cluster.master.store
    for number in numbers:
        id, schema = old_id(number), None
        if has_rows(number):
            schema = {"arrow": "YXJyb3c=", "widths": [1]}
        record = {
            "name": old_name(number),
            "id": id,
            "vchannels": [f"{PCHANNELS[(number + at) % 4]}_{id}v{at}" for at in range(2)],
            "created_ms": 1,
            "schema": schema,
        }
        await store.write({collection_key(old_name(number)): encode_fields(record)})
    await store.write({COLLECTION_ID_KEY: encode_number(old_id(numbers.stop))})
    assert await ensure_indexes(store)


def run(scenario: Callable[[Cluster], Awaitable[None]], cluster: Cluster | None = None) -> None:
    async def main() -> None:
        made = cluster or Cluster()
        await with_old(made)
        async with made.master.process():
            await scenario(made)

    run_seeded(1, main)


async def check_adopted(cluster: Cluster, numbers: Iterable[int] = range(OLD)) -> None:
    """Each of them was announced once, where it belongs, and has what a new one has."""
    master = cluster.master
    assert cluster.announced() == {old_id(number): 1 for number in numbers}
    for number in numbers:
        found = (await master.table.describe("", old_name(number), NONE)).collection
        assert found.announced
        assert (found.id, found.created_ms) == (old_id(number), 1)
        parts = await master.table.partitions("", old_name(number))
        assert parts == [("_default", found.default_partition)]
        sent = [
            sent
            for sent in master.logs.sent.values()
            if sent.request_key == f"{ADOPTION_KEY}{old_id(number)}"
        ]
        places = {CONTROL, *found.vchannels} if has_rows(number) else {CONTROL}
        assert [set(it.vchannels) for it in sent] == [places]


def test_each_is_announced_once_where_it_belongs_and_has_parts_then() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.until("done")
        await check_adopted(cluster)
        assert cluster.statistics() == {"adopted": OLD, "done": 1}
        assert await cluster.master.store.get(ADOPTED_KEY) is not None
        for number in (0, 1):
            await cluster.master.change(CreatePartition(old_name(number), "p"))
            await cluster.master.change(CreateAlias(old_name(number), f"alias{number}"))
        with pytest.raises(Refused, match="an index needs a vector"):
            await cluster.master.change(CreateIndex(old_name(0), "id", ()))

    run(scenario)


def test_until_then_it_is_altered_and_dropped_and_its_parts_come_later() -> None:
    async def scenario(cluster: Cluster) -> None:
        master = cluster.master
        for refused in (
            CreatePartition("old000", "p"),
            CreateIndex("old000", "id", ()),
            CreateAlias("old000", "other"),
        ):
            with pytest.raises(Refused, match="announced in the background") as raised:
                await master.change(refused)
            assert raised.value.refusal.code is StreamingCode.RESOURCE_ACQUIRED
        wider = await fields_of("old000", WIDER)
        for change in (ChangeSchema("old000", ARROW, WIDER, wider), DropCollection("old003")):
            assert set((await master.once(change)).results) == {CONTROL}
        cluster.version = BROADCAST_VERSION
        await cluster.until("done")
        announced = cluster.announced()
        assert announced.keys() == {old_id(it) for it in range(OLD)} - {old_id(3)}
        found = await master.table.describe("", "old000", NONE)
        assert found.collection.schema == WIDER
        assert found.fields == wider

    cluster = Cluster()
    cluster.version = BROADCAST_VERSION - 1
    run(scenario, cluster)


def test_what_changes_between_the_look_and_the_plan_is_looked_at_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.until("done")
        master = cluster.master
        # `old000` was altered, `old003` dropped, and `old006` made anew, all of them just then.
        changes = [it for it, _ in master.logs.changes()]
        first = next(it for it in changes if isinstance(it, AddCollection) and it.id == old_id(0))
        assert first.schema == WIDER
        assert any(isinstance(it, AlterSchema) for it in changes[: changes.index(first)])
        announced = cluster.announced()
        assert not {old_id(3), old_id(6)} & announced.keys()
        assert set(announced.values()) == {1}
        assert not await master.table.has_collection("", "old003")
        assert (await master.table.describe("", "old006", NONE)).collection.announced

    cluster = Cluster()

    async def meanwhile(name: str, rows: RowSchema) -> TableSchema:
        change, master = cluster.master.change, cluster.master
        match name:
            case "old000" if rows == ARROW:
                await change(ChangeSchema(name, ARROW, WIDER, await fields_of(name, WIDER)))
            case "old003" if await master.table.has_collection("", name):
                await change(DropCollection(name))
            case "old006":
                await change(DropCollection(name))
                await change(CreateCollection(name, 1))
            case _:
                pass
        return await fields_of(name, rows)

    cluster.fields = meanwhile
    run(scenario, cluster)


def test_what_cannot_be_announced_is_left_for_later_and_said() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.until("error")
        assert cluster.statistics()["error"].endswith("no node serves by-dev-rootcoord-dml_1 now")
        plain = [it for it in range(OLD) if not has_rows(it)]
        assert {old_id(it) for it in plain} < cluster.announced().keys()
        # No name is held for those that are left.
        await cluster.master.change(DropCollection(old_name(36)))
        cluster.served = set(PCHANNELS)
        await cluster.until("done")
        await check_adopted(cluster, {*range(OLD)} - {36})

    cluster = Cluster()
    cluster.served.discard(PCHANNELS[1])
    run(scenario, cluster)


def test_while_a_channel_takes_nothing_no_more_are_begun_than_one_look_finds() -> None:
    async def scenario(cluster: Cluster) -> None:
        logs, takes = cluster.master.logs, anyio.Event()
        append = logs.append

        async def stuck(copies: Sequence[BroadcastCopy]) -> Sequence[Appended | Refusal]:
            await takes.wait()
            return await append(copies)

        logs.append = stuck  # type: ignore[method-assign]
        await cluster.until("error")
        await anyio.sleep(600.0)
        tasks = await cluster.master.store.list(TASK_PREFIX, limit=100)
        assert len(tasks) == AT_ONCE
        assert "does not take the message about 'old0" in cluster.statistics()["error"]
        takes.set()
        await cluster.until("done")
        await check_adopted(cluster)

    run(scenario)


def test_without_the_library_of_arrow_only_plain_ones_are_announced() -> None:
    async def refused(_name: str, _rows: RowSchema) -> TableSchema:
        raise Refused(StreamingCode.UNRECOVERABLE, "no pyarrow")

    async def scenario(cluster: Cluster) -> None:
        await cluster.until("error")
        assert "no pyarrow" in cluster.statistics()["error"]
        assert cluster.announced().keys() == {old_id(it) for it in range(OLD) if not has_rows(it)}
        assert await cluster.master.store.get(ADOPTED_KEY) is None

    cluster = Cluster()
    cluster.fields = refused
    run(scenario, cluster)


@pytest.mark.parametrize("victim", [LOCKS, TASKS, TABLE, IDS, ADOPTER, ASSIGNER, ""])
@pytest.mark.parametrize("after", [True, False])
def test_whatever_dies_at_whichever_step_each_is_announced_once(victim: str, after: bool) -> None:
    """`victim` "": the store fails. Then the process ends in the middle, and a second one comes."""
    struck = 0
    for seed in range(1, 6):
        cluster = Cluster(Faults(frozenset(range(5 * seed, 400, 37)), after, victim), seed)

        async def main(cluster: Cluster = cluster, seed: int = seed) -> None:
            await with_old(cluster)
            async with cluster.master.process() as system:
                cluster.master.faults.system = system
                await cluster.until_announced(OLD // 4 * (seed % 4))
                cluster.master.faults.system = None
            async with cluster.master.process():
                await cluster.until("done")
            await check_adopted(cluster)

        run_seeded(seed, main)
        struck += cluster.master.faults.struck
    assert struck


def test_a_later_process_reads_one_record_and_is_done() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.until("done")

    cluster = Cluster()
    run(scenario, cluster)
    listed: list[str] = []
    store_list = cluster.master.store.list

    async def counted(prefix: str, *, limit: int, after: str = "") -> Sequence[Any]:
        listed.append(prefix)
        return await store_list(prefix, limit=limit, after=after)

    cluster.master.store.list = counted  # type: ignore[method-assign]

    async def main() -> None:
        async with cluster.master.process():
            await cluster.until("done")

    run_seeded(1, main)
    assert "collection/" not in listed


def test_what_an_earlier_release_has_made_since_is_announced_too() -> None:
    async def main() -> None:
        cluster = Cluster()
        await with_old(cluster, range(3))
        async with cluster.master.process():
            await cluster.until("done")
        await with_old(cluster, range(3, 5))
        async with cluster.master.process():
            await cluster.until("done")
        await check_adopted(cluster, range(5))

    run_seeded(1, main)


def test_a_cluster_without_collections_is_done_at_once_and_notes_nothing() -> None:
    async def main() -> None:
        cluster = Cluster()
        async with cluster.master.process():
            await cluster.until("done")
        assert await cluster.master.store.get(ADOPTED_KEY) is None

    run_seeded(1, main)
