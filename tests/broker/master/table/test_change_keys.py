"""Changes that wait together are read in one round trip."""

import pytest

from broker.codec.milvus_schemas import table_schema
from broker.master.table.apply_change import ChangeWriter
from broker.master.table.change_keys import keys_read
from broker.master.table.write_group import WriteGroup
from broker.model.collection import RowSchema
from broker.model.ids import CollectionId, PartitionId, TimeTick, VChannelName
from broker.model.master.fields import Field, FieldType
from broker.model.master.table_change import (
    AddCollection,
    AddDatabase,
    AddPartition,
    AlterRetention,
    AlterSchema,
    Index,
    PointAlias,
    PutIndex,
    RemoveAlias,
    RemoveCollection,
    RemoveDatabase,
    RemoveIndexes,
    RemovePartition,
    TableChange,
)
from broker.model.retention.policy import Retention
from broker.ports.meta import Conflict
from tests.broker.master.counted_reads import CountedReads

ID = CollectionId(100)
FIELDS = table_schema("a", [Field(100, "vector", FieldType.FLOAT_VECTOR, (("dim", "4"),))])
WIDER = table_schema("a", FIELDS.fields, version=1)


def changes(database: str) -> list[TableChange]:
    """One of each kind, in an order in which all of them take effect."""
    vchannels = (VChannelName("by-dev-rootcoord-dml_0_100v0"),)
    partitions = (("_default", PartitionId(1)),)
    return [
        AddDatabase("db", 7),
        AddCollection(database, "a", ID, vchannels, partitions, None, FIELDS),
        AlterSchema(ID, "a", database, RowSchema(b"two", (1, 2)), WIDER),
        AlterRetention(ID, "a", database, Retention(1 << 20, 5000)),
        AddPartition(ID, "a", database, "p", PartitionId(2)),
        PointAlias(database, "other", ID, "a"),
        PutIndex(ID, "a", database, Index(3, "i", "vector", 100, ()), None),
        RemoveIndexes(ID, "a", database, (3,)),
        RemoveAlias(database, "other"),
        RemovePartition(ID, "a", database, "p", PartitionId(2)),
        RemoveCollection(ID, "a", database),
        RemoveDatabase("db", 7),
    ]


@pytest.mark.parametrize("database", ["", "db"])
async def test_what_a_change_reads_is_known_before(database: str) -> None:
    store = CountedReads()
    for tick, change in enumerate(changes(database), start=1):
        group = WriteGroup(store)
        store.trips()
        await group.read_ahead(keys_read(change))
        await ChangeWriter(group).apply(change, TimeTick(tick))
        assert store.trips() == (0, 1), change
        await group.flush()


async def test_a_group_of_all_kinds_is_read_once_and_written_once() -> None:
    one_by_one, together = CountedReads(), CountedReads()
    group = WriteGroup(together)
    await group.read_ahead([key for it in changes("") for key in keys_read(it)])
    for tick, change in enumerate(changes("")[:5], start=1):
        await ChangeWriter(one_by_one).apply(change, TimeTick(tick))
        await ChangeWriter(group).apply(change, TimeTick(tick))
    await group.flush()
    assert together.trips() == (0, 1)
    stored = [
        [(key, entry.value) for key, entry in await it.list("", limit=99)]
        for it in (one_by_one, together)
    ]
    assert stored[0] == stored[1]


async def test_another_writer_is_noticed_at_the_flush() -> None:
    store = CountedReads()
    create = changes("")[1]
    group = WriteGroup(store)
    await group.read_ahead(keys_read(create))
    await ChangeWriter(group).apply(create, TimeTick(1))
    await ChangeWriter(store).apply(create, TimeTick(1))
    with pytest.raises(Conflict):
        await group.flush()
