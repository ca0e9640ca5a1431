"""The meta table as plain dictionaries: the fold of the changes in their order."""

from dataclasses import dataclass, field

from broker.master.table.stored_table import StoredTable
from broker.model.ids import CollectionId
from broker.model.master.table_change import (
    AddCollection,
    AddDatabase,
    AddPartition,
    PointAlias,
    PutIndex,
    RemoveAlias,
    RemoveCollection,
    RemoveDatabase,
    RemoveIndexes,
    RemovePartition,
    TableChange,
)


@dataclass
class NaiveCollection:
    """One collection, with all that belongs to it."""

    name: str
    database: str
    vchannels: tuple[str, ...]
    partitions: dict[str, int]
    indexes: dict[int, str] = field(default_factory=dict)


@dataclass
class NaiveTable:
    """Deliberately simple: everything is looked for in everything."""

    collections: dict[int, NaiveCollection] = field(default_factory=dict)
    aliases: dict[tuple[str, str], int] = field(default_factory=dict)
    databases: dict[str, int] = field(default_factory=dict)

    def apply(self, change: TableChange) -> None:  # noqa: C901 - one case for each change
        match change:
            case AddCollection():
                assert change.id not in self.collections
                self.collections[change.id] = NaiveCollection(
                    change.name, change.database, change.vchannels, dict(change.partitions)
                )
            case RemoveCollection(id):
                del self.collections[id]
                self.aliases = {key: it for key, it in self.aliases.items() if it != id}
            case AddPartition(id, _, __, name, partition):
                self.collections[id].partitions[name] = partition
            case RemovePartition(id, _, __, name):
                del self.collections[id].partitions[name]
            case PointAlias(database, alias, id):
                self.aliases[database, alias] = id
            case RemoveAlias(database, alias):
                del self.aliases[database, alias]
            case PutIndex(id, _, __, index, renamed):
                for each in (index, *(() if renamed is None else (renamed,))):
                    self.collections[id].indexes[each.id] = each.name
            case RemoveIndexes(id, _, __, ids):
                for each_id in ids:
                    del self.collections[id].indexes[each_id]
            case AddDatabase(name, id):
                self.databases[name] = id
            case RemoveDatabase(name):
                del self.databases[name]
            case _:
                raise AssertionError(change)


async def stored(table: StoredTable) -> NaiveTable:
    """What the records say, in the same form."""
    found = NaiveTable()
    databases = dict(await table.databases())
    found.databases = {name: id for name, id in databases.items() if name != "default"}
    for shown in databases:
        database = "" if shown == "default" else shown
        for each in await table.page(database, "", 1000):
            description = await table.describe("", "", CollectionId(each.id))
            partitions = dict(await table.partitions(database, each.name))
            assert description.partitions == len(partitions), "the count is that of the partitions"
            assert description.collection == each
            known = await table.indexes(database, each.name, "")
            found.collections[each.id] = NaiveCollection(
                each.name,
                database,
                each.vchannels,
                {name: int(id) for name, id in partitions.items()},
                {it.id: it.name for it in known},
            )
            for alias in description.aliases:
                found.aliases[database, alias] = each.id
        pairs = await table.aliases(database, "")
        names = {it.id: it for it in await table.page(database, "", 1000)}
        own = {
            key: names[CollectionId(id)].name
            for key, id in found.aliases.items()
            if key[0] == database
        }
        assert {(database, alias): name for alias, name in pairs} == own
    return found
