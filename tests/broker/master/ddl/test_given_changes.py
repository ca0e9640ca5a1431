"""Changes that clients of Milvus broadcast: with the ids and the sizes that they have chosen."""

from collections.abc import Awaitable, Callable, Sequence

import anyio
import pytest

from actors.testing import run_seeded
from broker.codec.milvus_schemas import table_schema
from broker.coordinator.broadcast.messages import ListBroadcasts, PlanBroadcast, StartBroadcast
from broker.core.naming import vchannel_name
from broker.master.table.record_sizes import CHANGE_BYTES_MAX
from broker.model.broadcast import Broadcasted
from broker.model.collection import RowSchema
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId, PartitionId
from broker.model.master.ddl import (
    ChangeSchema,
    CreateCollection,
    CreateIndex,
    DropCollection,
    GivenBroadcast,
)
from broker.model.master.fields import Field, FieldType, TableSchema
from broker.model.master.table_change import (
    AddCollection,
    AddDatabase,
    Index,
    PutIndex,
    RemoveDatabase,
    RemoveIndexes,
    TableChange,
)
from broker.ports.meta import MetaEntry
from tests.broker.coordinator.broadcast.broadcasting import LOCKS
from tests.broker.master.simulated_master import (
    ANSWER_S,
    CONTROL,
    PCHANNELS,
    SimulatedMaster,
    given_request,
)

Scenario = Callable[[SimulatedMaster], Awaitable[None]]
NONE = CollectionId(0)
FIELDS = table_schema("rows", [Field(100, "vector", FieldType.FLOAT_VECTOR, (("dim", "8"),))])


def run(scenario: Scenario) -> None:
    async def main() -> None:
        made = SimulatedMaster()
        async with made.process():
            await scenario(made)

    run_seeded(1, main)


def creation(name: str, id: int, table: TableSchema | None = None) -> AddCollection:
    vchannels = (vchannel_name(PCHANNELS[1], CollectionId(id), 0),)
    partitions = (("_default", PartitionId(id + 1)),)
    return AddCollection("", name, CollectionId(id), vchannels, partitions, None, table)


async def start(master: SimulatedMaster, change: TableChange, key: str) -> Broadcasted:
    assert master.system is not None
    found: Broadcasted = await master.system.find(LOCKS).ask(
        PlanBroadcast(given_request(change, key)), deadline_s=ANSWER_S
    )
    return found


def test_of_creations_at_once_with_one_id_one_is_made_and_the_others_are_refused() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        made, refused = list[str](), list[Refused]()

        async def create(name: str) -> None:
            try:
                await start(master, creation(name, 100), name)
            except Refused as error:
                refused.append(error)
            else:
                made.append(name)

        async with anyio.create_task_group() as group:
            for name in ("a", "b", "c"):
                group.start_soon(create, name)
        assert {it.refusal.code for it in refused} == {StreamingCode.INVALID_ARGUMENT}
        causes = [it.refusal.cause for it in refused]
        assert causes == ["id 100 is of a collection that is being created"] * 2
        found = await master.table.describe("", "", CollectionId(100))
        assert [found.collection.name] == made
        assert await master.table.clashes() == []

    run(scenario)


def test_no_collection_gets_the_id_of_one_that_a_client_is_creating() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(start, master, creation("given", 100), "given")
            await anyio.sleep(0.0001)
            group.start_soon(master.change, CreateCollection("ours", 1))
        ids = {it.name: it.id for it in await master.table.page("", "", 10)}
        assert ids == {"given": 100, "ours": 101}
        assert await master.table.clashes() == []

    run(scenario)


def test_a_client_does_not_drop_a_database_that_has_collections() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        await start(master, AddDatabase("air", 7), "add")
        await master.change(CreateCollection("flights", 1, database="air"))
        with pytest.raises(Refused, match="database 'air' has collections") as caught:
            await start(master, RemoveDatabase("air", 7), "too early")
        assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT
        await master.change(DropCollection("flights", "air"))
        await start(master, RemoveDatabase("air", 7), "now")
        assert await master.table.databases() == [("default", 0)]

    run(scenario)


def too_large() -> TableSchema:
    comment = (("comment", "é" * 4000),)
    return table_schema(
        "big", [Field(100 + it, f"f{it}", FieldType.VARCHAR, comment) for it in range(60)]
    )


def test_a_change_whose_records_do_not_fit_is_refused_before_it_is_recorded() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        big = too_large()
        with pytest.raises(Refused, match=f"at most {CHANGE_BYTES_MAX} are possible"):
            await start(master, creation("big", 500, big), "given")
        with pytest.raises(Refused, match=f"at most {CHANGE_BYTES_MAX} are possible"):
            await master.change(CreateCollection("big", 1, None, big))
        # The name and the id are free again.
        await start(master, creation("big", 500, FIELDS), "smaller")

    run(scenario)


def test_a_recorded_change_that_does_not_fit_is_listed_and_holds_nothing_up() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        # Unplanned, as one of an earlier release was recorded.
        recorded = given_request(creation("big", 500, too_large()), "earlier").ddl
        assert isinstance(recorded, GivenBroadcast)
        assert master.system is not None
        locks = master.system.find(LOCKS)
        await locks.ask(StartBroadcast(recorded.broadcast), deadline_s=ANSWER_S)
        assert await locks.ask(ListBroadcasts(), deadline_s=ANSWER_S) == ()
        (clash,) = await master.table.clashes()
        assert f"at most {CHANGE_BYTES_MAX} are possible" in clash.cause
        await master.change(CreateCollection("big", 1))

    run(scenario)


def test_a_drop_of_many_indexes_leaves_none_of_them() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        id = CollectionId((await master.change(CreateCollection("rows", 1, None, FIELDS))).id)
        params = (("index_type", "HNSW"),)
        for number in range(1, 121):
            index = Index(number, f"i{number}", "vector", 100, (*params, ("M", str(number))))
            await start(master, PutIndex(id, "rows", "", index), f"put {number}")
        assert len(await master.table.indexes("", "rows", "")) == 120
        await start(master, RemoveIndexes(id, "rows", "", tuple(range(1, 121))), "drop")
        assert await master.table.indexes("", "rows", "") == []
        await master.change(CreateIndex("rows", "vector", params))
        assert len(await master.table.indexes("", "rows", "")) == 1

    run(scenario)


def test_added_columns_go_to_the_control_channel_alone() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        first, second = RowSchema(b"one", (1,)), RowSchema(b"two", (1, 2))
        await master.change(CreateCollection("rows", 2, first, FIELDS))
        more = table_schema("rows", FIELDS.fields, version=1)
        done = await master.once(ChangeSchema("rows", first, second, more))
        assert set(done.results) == {CONTROL}
        assert (await master.table.describe("", "rows", NONE)).collection.schema == second
        assert len((await master.once(DropCollection("rows"))).results) == 3

    run(scenario)


def test_a_creation_beside_a_drop_reads_no_list_of_collections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(master: SimulatedMaster) -> None:
        await master.change(CreateCollection("old", 1))
        listed, store_list = list[str](), master.store.list

        async def counted(
            prefix: str, *, limit: int, after: str = ""
        ) -> Sequence[tuple[str, MetaEntry]]:
            listed.append(prefix)
            return await store_list(prefix, limit=limit, after=after)

        monkeypatch.setattr(master.store, "list", counted)
        async with anyio.create_task_group() as group:
            group.start_soon(master.change, DropCollection("old"))
            for number in range(6):
                group.start_soon(master.change, CreateCollection(f"new{number}", 1))
        assert "partition/100/" in listed
        assert "collection/" not in listed

    run(scenario)
