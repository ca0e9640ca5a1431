"""The resource keys of each change: what it waits for, and what waits for it."""

from typing import assert_never

from broker.model.broadcast import ResourceKey
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
from broker.model.master.table_change import (
    DEFAULT_DATABASE,
    AddCollection,
    AddDatabase,
    AddPartition,
    AlterCompaction,
    AlterRetention,
    AlterSchema,
    PointAlias,
    PutIndex,
    RemoveAlias,
    RemoveCollection,
    RemoveDatabase,
    RemoveIndexes,
    RemovePartition,
    TableChange,
)


def ddl_keys(ddl: Ddl) -> tuple[ResourceKey, ...]:
    """The names that the change is about, exclusively, and its database, shared."""
    match ddl:
        case CreateCollection(name, database=database) | DropCollection(name, database):
            return _names(database, name)
        case AdoptCollection(name) | ChangeSchema(name, database=""):
            return _names("", name)
        case (
            ChangeSchema(name, database=database)
            | ChangeRetention(name, database=database)
            | ChangeCompaction(name, database=database)
        ):
            return _names(database, name)
        case CreatePartition(name, database=database) | DropPartition(name, database=database):
            return _names(database, name)
        case CreateIndex(name, database=database) | DropIndex(name, database=database):
            return _names(database, name)
        case CreateAlias(name, alias, database=database):
            return _names(database, name, alias)
        case DropAlias(alias, database):
            return _names(database, alias)
        case CreateDatabase(database) | DropDatabase(database):
            return (ResourceKey.database(database or DEFAULT_DATABASE),)
        case GivenBroadcast(broadcast, change):
            # Those that the client named, too: it knows what else its message is about.
            return tuple(dict.fromkeys((*broadcast.keys, *_change_keys(change))))
        case _:
            assert_never(ddl)


def _change_keys(change: TableChange) -> tuple[ResourceKey, ...]:
    match change:
        case AddCollection() | RemoveCollection() | AlterSchema():
            return _names(change.database, change.name)
        case AlterRetention() | AlterCompaction():
            return _names(change.database, change.name)
        case AddPartition() | RemovePartition() | PutIndex() | RemoveIndexes():
            return _names(change.database, change.collection_name)
        case PointAlias():
            return _names(change.database, change.collection_name, change.alias)
        case RemoveAlias():
            return _names(change.database, change.alias)
        case AddDatabase() | RemoveDatabase():
            return (ResourceKey.database(change.name),)
        case _:
            assert_never(change)


def _names(database: str, *names: str) -> tuple[ResourceKey, ...]:
    shown = database or DEFAULT_DATABASE
    exclusive = [ResourceKey.collection(name, shown) for name in names if name]
    return (*exclusive, ResourceKey.database(shown, shared=True))
