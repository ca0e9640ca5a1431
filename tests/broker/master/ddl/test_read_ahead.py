"""Plans read the store once or twice, and see what was written before them."""

from collections.abc import Sequence

import pytest

from broker.codec.milvus_schemas import table_schema
from broker.codec.stored_ddl import StoredDdl
from broker.core.master.ddl_keys import ddl_keys
from broker.core.naming import control_channel, pchannel_names
from broker.master.ddl.ddl_planner import DdlPlanner
from broker.master.ddl.read_ahead import ReadAhead
from broker.master.table.apply_change import ChangeWriter
from broker.model.failure import Refused
from broker.model.ids import CollectionId, TimeTick
from broker.model.master.ddl import (
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
    PlannedRequest,
)
from broker.model.master.fields import Field, FieldType
from broker.model.master.id_range import IdRange
from tests.broker.master.counted_reads import CountedReads

PCHANNELS = pchannel_names("by-dev", 4)
FIELDS = table_schema("rows", [Field(100, "vector", FieldType.FLOAT_VECTOR, (("dim", "4"),))])
FLAT = (("index_type", "FLAT"),)


class Given:
    """See IdSource; from a counter."""

    def __init__(self) -> None:
        self._next = 1_000_000

    async def take(self, count: int = 1) -> IdRange:
        first, self._next = self._next, self._next + count
        return IdRange(first, count)


class Planned:
    """A planner on a store that counts, whose plans are applied at once."""

    def __init__(self) -> None:
        self.store, self._messages, self._done = CountedReads(), StoredDdl(), 0
        control = control_channel(PCHANNELS[0])
        self._planner = DdlPlanner(self.store, PCHANNELS, control, self._messages, Given())

    async def trips(self, ddl: Ddl) -> tuple[int, int]:
        """Plan a change and apply it; the reads of one and of several keys of its plan."""
        self._done += 1
        self.store.trips()
        request = PlannedRequest(ddl, ddl_keys(ddl), f"request {self._done}", "", 0)
        broadcast = await self._planner.plan(request)
        found = self.store.trips()
        change = self._messages.decode(broadcast.type, broadcast.body, broadcast.vchannels)
        assert change is not None
        await ChangeWriter(self.store).apply(change, TimeTick(self._done))
        self._planner.finished(request.request_key)
        return found

    async def together(self, ddls: Sequence[Ddl]) -> tuple[int, int]:
        """As `trips`, of several changes whose records are read together."""
        self.store.trips()
        requests = [PlannedRequest(it, ddl_keys(it), f"of {it}", "", 0) for it in ddls]
        await self._planner.read_ahead(requests)
        planned = [await self._planner.plan(it) for it in requests]
        self._planner.forget()
        found = self.store.trips()
        for it in planned:
            self._done += 1
            change = self._messages.decode(it.type, it.body, it.vchannels)
            assert change is not None
            await ChangeWriter(self.store).apply(change, TimeTick(self._done))
            self._planner.finished(it.request_key)
        return found


async def test_a_plan_reads_the_store_once_or_twice_and_no_key_alone() -> None:
    planned = Planned()
    assert await planned.trips(CreateDatabase("db")) == (1, 0)
    for database in ("", "db"):
        assert await planned.trips(CreateCollection("a", 2, None, FIELDS, database)) == (0, 1)
        assert await planned.trips(CreatePartition("a", "p", database)) == (0, 2)
        assert await planned.trips(CreateAlias("a", "other", database=database)) == (0, 1)
        assert (await planned.trips(CreateIndex("a", "vector", FLAT, "", database)))[0] == 0
        assert (await planned.trips(DropIndex("a", "vector", "", database)))[0] == 0
        assert await planned.trips(DropPartition("a", "p", database)) == (0, 2)
        await planned.trips(DropAlias("other", database))
        assert await planned.trips(DropCollection("a", database)) == (0, 2)
    await planned.trips(DropDatabase("db"))


async def test_each_plan_sees_what_was_written_before_it() -> None:
    planned = Planned()
    for _ in range(3):
        await planned.trips(CreateCollection("a", 1))
        with pytest.raises(Refused, match="exists"):
            await planned.trips(CreateCollection("a", 1))
        await planned.trips(CreatePartition("a", "p"))
        with pytest.raises(Refused, match="exists already"):
            await planned.trips(CreatePartition("a", "p"))
        await planned.trips(DropPartition("a", "p"))
        await planned.trips(CreatePartition("a", "p"))
        await planned.trips(DropCollection("a"))
        with pytest.raises(Refused, match="there is no collection 'a'"):
            await planned.trips(CreatePartition("a", "p"))


async def test_plans_that_are_read_ahead_together_read_nothing_themselves() -> None:
    planned = Planned()
    changes = [CreatePartition(name, "p") for name in "abc"] + [CreateCollection("d", 1)]
    for name in "abc":
        await planned.trips(CreateCollection(name, 1))
    assert await planned.together([*changes, CreateCollection("e", 1)]) == (0, 2)
    assert await planned.trips(DropPartition("a", "p")) == (0, 2), "nothing is kept for later"


async def test_a_write_through_it_is_read_back() -> None:
    store = CountedReads()
    ahead = ReadAhead(store)
    await store.write({"counter/collection": b"100"})
    await ahead.read([CreateCollection("a", 1)], CollectionId(100))
    assert store.trips() == (0, 1)
    assert await ahead.get("collection/a") is None
    await ahead.write({"collection/a": b"1"})
    found = await ahead.get("collection/a")
    assert found is not None
    assert found.value == b"1"
    assert [key for key, _ in await ahead.list("co", limit=9)] == [
        "collection/a",
        "counter/collection",
    ]
    await ahead.close()
    assert await store.get("collection/a") is not None, "the store belongs to others"
