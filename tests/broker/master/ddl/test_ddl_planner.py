"""Changes of definitions over a simulated store and logs: what each does, and what is refused."""

from collections import Counter
from collections.abc import Awaitable, Callable

import anyio
import pytest

from actors.testing import run_seeded
from broker.codec.milvus_schemas import table_schema
from broker.coordinator.broadcast.messages import StartBroadcast
from broker.coordinator.broadcast.pending_broadcasts import BroadcasterLimits
from broker.coordinator.catalog.messages import NameTaken
from broker.core.naming import pchannel_of
from broker.model.broadcast import ResourceKey
from broker.model.collection import RowSchema
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId, VChannelName
from broker.model.master.ddl import (
    ChangeSchema,
    CreateAlias,
    CreateCollection,
    CreateDatabase,
    CreateIndex,
    CreatePartition,
    Ddl,
    DropAlias,
    DropCollection,
    DropDatabase,
    DropIndex,
    DropPartition,
)
from broker.model.master.fields import Field, FieldType
from broker.model.master.table_change import AddCollection
from broker.model.message import MessageType
from tests.broker.coordinator.broadcast.broadcasting import broadcast
from tests.broker.master.simulated_master import CONTROL, PCHANNELS, SimulatedMaster

Scenario = Callable[[SimulatedMaster], Awaitable[None]]
FIELDS = table_schema(
    "rows",
    (
        Field(100, "id", FieldType.INT64, primary=True),
        Field(101, "vector", FieldType.FLOAT_VECTOR, (("dim", "8"),)),
        Field(102, "text", FieldType.VARCHAR),
    ),
)
ROWS = RowSchema(b"one", (1,))
NONE = CollectionId(0)
INDEX = (("index_type", "HNSW"), ("M", "8"))


def run(scenario: Scenario, master: SimulatedMaster | None = None) -> None:
    async def main() -> None:
        made = master or SimulatedMaster()
        async with made.process():
            await scenario(made)

    run_seeded(1, main)


def test_a_collection_gets_an_id_a_default_partition_and_vchannels_on_different_pchannels() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        answer = await master.change(CreateCollection("flights", 4))
        assert answer.id == 100
        assert answer.vchannels == tuple(f"{name}_100v{at}" for at, name in enumerate(PCHANNELS))
        found = await master.table.describe("", "flights", NONE)
        assert (found.collection.id, found.collection.vchannels) == (100, answer.vchannels)
        assert found.collection.default_partition == answer.partition > 0
        assert found.collection.announced
        assert await master.table.partitions("", "flights") == [("_default", answer.partition)]

    run(scenario)


def test_a_plain_collection_goes_to_the_control_channel_one_with_fields_to_its_vchannels() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        for name, schema, fields in (
            ("plain", None, None),
            ("rows", ROWS, FIELDS),
            ("milvus", None, FIELDS),
        ):
            created = await master.once(CreateCollection(name, 2, schema, fields))
            found = (await master.table.describe("", name, NONE)).collection
            places = {CONTROL} if fields is None else {CONTROL, *found.vchannels}
            assert set(created.results) == places
            for change in (
                CreatePartition(name, "p"),
                DropPartition(name, "p"),
                DropCollection(name),
            ):
                assert set((await master.once(change)).results) == places

    run(scenario)


def test_partitions_say_whether_their_collection_is_of_arrow_rows() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        for name, schema in (("rows", ROWS), ("milvus", None)):
            await master.change(CreateCollection(name, 1, schema, FIELDS))
            await master.change(CreatePartition(name, "p"))
            await master.change(DropPartition(name, "p"))
        parts = [it for it, _ in master.logs.changes() if not isinstance(it, AddCollection)]
        assert [getattr(it, "of_rows", None) for it in parts] == [True, True, False, False]

    run(scenario)


def test_collections_go_to_the_least_loaded_pchannels_those_under_way_counted() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        async with anyio.create_task_group() as group:
            for number, shards in enumerate((1, 2, 1, 6, 2)):
                group.start_soon(master.change, CreateCollection(f"c{number}", shards))
        made = await master.table.page("", "", 100)
        loads = Counter(pchannel_of(vchannel) for each in made for vchannel in each.vchannels)
        assert sorted(loads.values()) == [3, 3, 3, 3]
        assert sorted(it.id for it in made) == [100, 101, 102, 103, 104]

    run(scenario)


REFUSED: list[tuple[Ddl, str]] = [
    (CreateCollection("a b", 1), "'a b'"),
    (CreateCollection("../x", 1), r"'\.\./x'"),
    (CreateCollection("", 1), "''"),
    (CreateCollection("ok", 0), "not 0"),
    (CreateCollection("ok", 1025), "not 1025"),
    (CreateCollection("ok", 1, database="none"), "no database 'none'"),
    (CreateCollection("other", 1), "'other' is an alias of collection 'rows'"),
    (DropCollection("none"), "no collection 'none'"),
    (DropCollection("other"), "no collection 'other'"),
    (ChangeSchema("none", ROWS, ROWS, FIELDS), "no collection 'none'"),
    (ChangeSchema("rows", RowSchema(b"x", (1,)), ROWS, FIELDS), "has changed; try again"),
    (CreatePartition("none", "p"), "no collection 'none'"),
    (CreatePartition("rows", "../p"), r"partition name '\.\./p'"),
    (CreatePartition("rows", "p" * 256), "has 256 characters"),
    (CreatePartition("rows", "_default"), "exists already"),
    (DropPartition("rows", "_default"), "default partition cannot be deleted"),
    (DropPartition("rows", "none"), "has no partition 'none'"),
    (CreateIndex("none", "vector", INDEX), "no collection 'none'"),
    (CreateIndex("rows", "none", INDEX), "no field 'none'; the fields are: id, vector, text"),
    (CreateIndex("rows", "text", INDEX), "'text' has type VARCHAR; an index needs a vector"),
    (CreateIndex("rows", "vector", ()), "no parameters"),
    (CreateIndex("plain", "vector", INDEX), "'plain' has no schema"),
    (CreateIndex("rows", "vector", INDEX, "a/b"), "index name 'a/b'"),
    (CreateAlias("none", "a"), "no collection 'none'"),
    (CreateAlias("rows", "plain"), "'plain' is the name of a collection"),
    (CreateAlias("rows", "a/b"), "'a/b'"),
    (CreateAlias("plain", "other"), "an alias of collection 'rows' already; alter it"),
    (DropAlias("none"), "no alias 'none'"),
    (CreateDatabase(""), "'default' exists already"),
    (CreateDatabase("air"), "'air' exists already"),
    (DropDatabase(""), "default database cannot be dropped"),
    (DropDatabase("none"), "no database 'none'"),
    (DropDatabase("air"), "'air' has collections"),
]


@pytest.mark.parametrize(("ddl", "text"), REFUSED, ids=[repr(ddl)[:60] for ddl, _ in REFUSED])
def test_what_cannot_be_is_refused_with_its_reason_and_changes_nothing(ddl: Ddl, text: str) -> None:
    async def scenario(master: SimulatedMaster) -> None:
        await master.change(CreateCollection("rows", 1, ROWS, FIELDS))
        await master.change(CreateCollection("plain", 1))
        await master.change(CreateAlias("rows", "other"))
        await master.change(CreateDatabase("air"))
        await master.change(CreateCollection("flights", 1, database="air"))
        before, sent = dict(master.store._entries), len(master.logs.changes())
        with pytest.raises(Refused, match=text):
            await master.change(ddl)
        changed = {key for key, entry in master.store._entries.items() if before.get(key) != entry}
        assert changed <= {"ids/bound"}
        assert len(master.logs.changes()) == sent

    run(scenario)


def test_a_name_that_is_taken_is_refused_with_the_collection_that_has_it() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        answer = await master.change(CreateCollection("flights", 1))
        with pytest.raises(NameTaken, match="'flights' exists already") as caught:
            await master.change(CreateCollection("flights", 2))
        assert caught.value.collection.id == answer.id

    run(scenario)


def test_a_dropped_name_is_free_again_its_id_is_not_and_what_it_had_is_gone() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        first = await master.change(CreateCollection("flights", 1, ROWS, FIELDS))
        for number in range(120):
            await master.change(CreatePartition("flights", f"p{number}"))
        await master.change(CreateIndex("flights", "vector", INDEX))
        await master.change(CreateAlias("flights", "air"))
        await master.change(DropCollection("flights"))
        assert not await master.table.has_collection("", "air")
        again = await master.change(CreateCollection("flights", 1))
        assert again.id == first.id + 1
        # The alias is free, too, and nothing below the first id is left.
        await master.change(CreateCollection("air", 1))
        left = [key for key in master.store._entries if f"/{first.id}/" in key]
        assert left == []
        assert [name for name, _ in await master.table.partitions("", "flights")] == ["_default"]

    run(scenario)


def test_one_name_stands_in_each_database_for_its_own_collection() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        await master.change(CreateDatabase("air"))
        here = await master.change(CreateCollection("flights", 1))
        there = await master.change(CreateCollection("flights", 1, database="air"))
        assert here.id != there.id
        assert [it.id for it in await master.table.page("", "", 10)] == [here.id]
        assert [it.id for it in await master.table.page("air", "", 10)] == [there.id]
        found = await master.table.describe("", "", CollectionId(there.id))
        assert (found.collection.name, found.collection.database) == ("flights", "air")
        await master.change(DropCollection("flights", "air"))
        await master.change(DropDatabase("air"))
        assert await master.table.databases() == [("default", 0)]
        assert await master.table.has_collection("", "flights")

    run(scenario)


def test_equal_parameters_are_the_same_index_and_a_name_that_is_taken_is_made_free() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        await master.change(CreateCollection("rows", 1, ROWS, FIELDS))
        first = await master.change(CreateIndex("rows", "vector", INDEX))
        again = await master.change(CreateIndex("rows", "vector", INDEX[::-1], "mine"))
        assert again.id == first.id
        other = await master.change(
            CreateIndex("rows", "vector", (("index_type", "FLAT"),), "mine")
        )
        assert other.id != first.id
        found = await master.table.indexes("", "rows", "vector")
        assert {it.id: it.name for it in found} == {first.id: "mine_bak", other.id: "mine"}
        with pytest.raises(Refused, match="has 2 indexes: mine, mine_bak; name the one to drop"):
            await master.change(DropIndex("rows", "vector"))
        await master.change(DropIndex("rows", "vector", "mine"))
        await master.change(DropIndex("rows", "vector", "none"))
        assert [it.id for it in await master.table.indexes("", "rows", "")] == [first.id]

    run(scenario)


def test_an_alias_stands_for_one_collection_until_it_is_altered_or_dropped() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        one = await master.change(CreateCollection("one", 1))
        two = await master.change(CreateCollection("two", 1))
        await master.change(CreateAlias("one", "newest"))
        found = await master.table.describe("", "newest", NONE)
        assert (found.collection.id, found.aliases) == (one.id, ("newest",))
        await master.change(CreateAlias("two", "newest", alter=True))
        found = await master.table.describe("", "newest", NONE)
        assert found.collection.id == two.id
        assert (await master.table.describe("", "one", NONE)).aliases == ()
        # Dropping the first one leaves the alias of the second.
        await master.change(DropCollection("one"))
        assert await master.table.aliases("", "") == [("newest", "two")]
        await master.change(DropAlias("newest"))
        assert await master.table.aliases("", "two") == []

    run(scenario)


def test_a_partition_is_found_by_name_until_it_is_dropped() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        await master.change(CreateCollection("rows", 1, ROWS, FIELDS))
        made = await master.change(CreatePartition("rows", "2026"))
        assert await master.table.partition("", "rows", "2026") == made.id
        assert (await master.table.describe("", "rows", NONE)).partitions == 2
        await master.change(DropPartition("rows", "2026"))
        assert await master.table.partition("", "rows", "2026") is None
        assert (await master.table.describe("", "rows", NONE)).partitions == 1
        kinds = [sent.type for sent in master.logs.sent.values()]
        assert kinds[-1] == MessageType.DROP_PARTITION

    run(scenario)


def test_a_repeat_with_the_same_request_id_gets_the_first_answer_also_after_a_restart() -> None:
    master = SimulatedMaster()

    async def main() -> None:
        async with master.process():
            first = await master.change(CreateCollection("flights", 2), "mine")
            await master.change(DropCollection("flights"))
            assert await master.change(CreateCollection("flights", 2), "mine") == first
        async with master.process():
            assert await master.change(CreateCollection("flights", 2), "mine") == first
            assert not await master.table.has_collection("", "flights")
            with pytest.raises(Refused, match="was used with other content; use a new key"):
                await master.change(CreateCollection("flights", 3), "mine")

    run_seeded(1, main)


def test_a_timestamp_older_than_the_last_one_of_the_name_is_refused_also_after_a_restart() -> None:
    master = SimulatedMaster()

    async def main() -> None:
        async with master.process():
            await master.change(CreateCollection("one", 1), timestamp=20)
            with pytest.raises(Refused, match="timestamp 19 is older than 20") as caught:
                await master.change(DropCollection("one"), timestamp=19)
            assert caught.value.refusal.code is StreamingCode.INVALID_ARGUMENT
            # Another name has its own, and a request without one is never stale.
            await master.change(CreateCollection("two", 1), timestamp=5)
            await master.change(CreatePartition("one", "p"))
            await master.change(CreatePartition("one", "q"), timestamp=20)
        async with master.process():
            with pytest.raises(Refused, match="timestamp 19 is older than 20"):
                await master.change(DropCollection("one"), timestamp=19)

    run_seeded(1, main)


def test_of_many_changes_at_once_those_beyond_the_limit_are_refused_and_may_be_retried() -> None:
    master = SimulatedMaster(limits=BroadcasterLimits(planned_max=16))
    refusals: list[Refused] = []

    async def create(number: int) -> None:
        try:
            await master.once(CreatePartition("one", f"p{number}"))
        except Refused as error:
            refusals.append(error)

    async def main() -> None:
        async with master.process():
            await master.change(CreateCollection("one", 1))
            async with anyio.create_task_group() as group:
                for number in range(100):
                    group.start_soon(create, number)
            made = await master.table.partitions("", "one")
            assert {it.refusal.code for it in refusals} == {StreamingCode.INNER}
            assert all("16 changes of definitions wait" in str(it) for it in refusals)
            assert 16 <= len(made) - 1 == 100 - len(refusals) < 100

    run_seeded(1, main)


def test_a_change_waits_for_those_of_its_name_and_is_checked_when_it_holds_the_name() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        outcomes: list[str] = []

        async def create() -> None:
            try:
                await master.change(CreateCollection("same", 1))
                outcomes.append("made")
            except NameTaken:
                outcomes.append("taken")

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(create)
        assert sorted(outcomes) == ["made", *["taken"] * 4]
        assert len(master.logs.changes()) == 1

    run(scenario)


def test_a_store_that_fails_while_a_change_is_planned_is_a_refusal_that_may_be_retried() -> None:
    master = SimulatedMaster()

    async def main() -> None:
        async with master.process() as system:
            await master.change(CreateCollection("one", 1))
            master.faults.system, master.faults.at = system, frozenset({1})
            with pytest.raises(Refused, match="nothing has changed") as caught:
                await master.once(CreateCollection("two", 1))
            assert caught.value.refusal.code is StreamingCode.INNER
            assert master.faults.struck == 1
            made = await master.change(CreateCollection("two", 1))
            assert made.id == 101

    run_seeded(1, main)


def test_a_broadcast_that_is_no_change_of_definitions_runs_beside_them() -> None:
    async def scenario(master: SimulatedMaster) -> None:
        assert master.system is not None
        places = (VChannelName(f"{PCHANNELS[1]}_7v0"),)
        key = ResourceKey.collection("other")
        plain = broadcast("plain", key, vchannels=places, kind=MessageType.INSERT)
        locks = master.system.find("/root/broadcaster/locks")
        async with anyio.create_task_group() as group:
            group.start_soon(master.change, CreateCollection("one", 1))
            done = await locks.ask(StartBroadcast(plain), deadline_s=10.0)
        assert set(done.results) == set(places)

    run(scenario)
