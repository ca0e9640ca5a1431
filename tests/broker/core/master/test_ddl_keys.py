"""The resource keys of changes."""

import pytest

from broker.core.master.ddl_keys import ddl_keys
from broker.model.broadcast import Broadcast, ResourceKey
from broker.model.collection import RowSchema
from broker.model.ids import CollectionId, PartitionId
from broker.model.master.ddl import (
    AdoptCollection,
    ChangeCompaction,
    ChangeRetention,
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
    GivenBroadcast,
)
from broker.model.master.fields import TableSchema
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

ID, PART = CollectionId(1), PartitionId(2)
ROWS, TABLE = RowSchema(b"", (1,)), TableSchema((), b"")
HERE = (ResourceKey.collection("c"), ResourceKey.database(shared=True))
THERE = (ResourceKey.collection("c", "db"), ResourceKey.database("db", shared=True))


@pytest.mark.parametrize(
    ("ddl", "keys"),
    [
        (CreateCollection("c", 1), HERE),
        (CreateCollection("c", 1, database="db"), THERE),
        (AdoptCollection("c", ID), HERE),
        (DropCollection("c", "db"), THERE),
        (ChangeSchema("c", ROWS, ROWS, TABLE), HERE),
        (ChangeSchema("c", ROWS, ROWS, TABLE, "db"), THERE),
        (CreatePartition("c", "p", "db"), THERE),
        (DropPartition("c", "p"), HERE),
        (CreateIndex("c", "f", (), database="db"), THERE),
        (ChangeRetention("c"), HERE),
        (ChangeCompaction("c", None), HERE),
        (ChangeCompaction("c", None, "db"), THERE),
        (ChangeRetention("c", 1000, None, "db"), THERE),
        (DropIndex("c", "f"), HERE),
        (CreateAlias("c", "a"), (HERE[0], ResourceKey.collection("a"), HERE[1])),
        (DropAlias("c"), HERE),
        (CreateDatabase("db"), (ResourceKey.database("db"),)),
        (DropDatabase(""), (ResourceKey.database("default"),)),
    ],
)
def test_a_change_holds_its_names_and_shares_its_database(
    ddl: Ddl, keys: tuple[ResourceKey, ...]
) -> None:
    assert ddl_keys(ddl) == keys


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        (AddCollection("", "c", ID, (), ()), HERE),
        (RemoveCollection(ID, "c", ""), HERE),
        (RemoveCollection(ID, "", ""), HERE[1:]),
        (AlterSchema(ID, "c", "db", None, TABLE), THERE),
        (AlterRetention(ID, "c", "db", Retention()), THERE),
        (AddPartition(ID, "c", "", "p", PART), HERE),
        (RemovePartition(ID, "c", "", "p", PART), HERE),
        (PutIndex(ID, "c", "", Index(1, "i", "f", 100, ())), HERE),
        (RemoveIndexes(ID, "c", "", ()), HERE),
        (PointAlias("", "a", ID, "c"), (HERE[0], ResourceKey.collection("a"), HERE[1])),
        (RemoveAlias("", "c"), HERE),
        (AddDatabase("db", 1), (ResourceKey.database("db"),)),
        (RemoveDatabase("db", 1), (ResourceKey.database("db"),)),
    ],
)
def test_a_given_change_also_holds_the_keys_that_its_client_named(
    change: TableChange, keys: tuple[ResourceKey, ...]
) -> None:
    own = ResourceKey.snapshot("s")
    given = Broadcast(5, (), (own, *keys[:1]), b"", 0, "key", "content")
    assert ddl_keys(GivenBroadcast(given, change)) == (own, *keys)
