"""The meta table as plain dictionaries: the fold of the changes in their order."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from broker.coordinator.catalog.stored_retentions import StoredRetentions
from broker.coordinator.records import COLLECTION_PREFIX, IN_DATABASE_PREFIX, decode_collection
from broker.master.table.stored_table import StoredTable
from broker.master.table.table_records import TableRecords
from broker.model.collection import Collection, RowSchema
from broker.model.master.table_change import (
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
from broker.model.retention.compaction import Compaction
from broker.model.retention.policy import Retention
from broker.ports.meta import MetaStore
from broker.ports.meta_writes import all_entries


@dataclass
class NaiveCollection:
    """One collection, with all that belongs to it. `version`: of its fields; 0: it has none."""

    name: str
    database: str
    vchannels: tuple[str, ...]
    partitions: dict[str, int] = field(default_factory=dict)
    indexes: dict[int, str] = field(default_factory=dict)
    rows: RowSchema | None = None
    version: int | None = None
    announced: bool = True
    retention: Retention = Retention()
    compaction: Compaction | None = None

    @classmethod
    def of(cls, it: Collection) -> "NaiveCollection":
        """As a release before this one has recorded it."""
        return cls(
            *(it.name, it.database, it.vchannels),
            rows=it.schema,
            announced=it.announced,
            retention=it.retention,
            compaction=it.compaction,
        )


@dataclass
class NaiveTable:
    """Deliberately simple: everything is looked for in everything."""

    collections: dict[int, NaiveCollection] = field(default_factory=dict)
    aliases: dict[tuple[str, str], int] = field(default_factory=dict)
    databases: dict[str, int] = field(default_factory=dict)
    clashes: set[tuple[object, ...]] = field(default_factory=set)

    def apply_all(self, changes: Iterable[TableChange]) -> None:
        for change in changes:
            self._apply(change)

    def _apply(self, change: TableChange) -> None:  # noqa: C901 - one case for each change
        match change:
            case AddCollection() | RemoveCollection() | AlterSchema() | AlterRetention():
                self._collection(change)
            case AlterCompaction(id, compaction=compaction):
                if id in self.collections:
                    self.collections[id].compaction = compaction
            case AddPartition() | RemovePartition() | PutIndex() | RemoveIndexes():
                if change.collection in self.collections:
                    self._part(self.collections[change.collection], change)
            case PointAlias(database, alias, id):
                if id in self.collections and self.aliases.get((database, alias)) != id:
                    if self._named(database, alias) is None:
                        self.aliases[database, alias] = id
                    else:
                        self.clashes.add(("alias", id, alias))
            case RemoveAlias(database, alias):
                self.aliases.pop((database, alias), None)
            case AddDatabase(name, id):
                self.databases.setdefault(name, id)
            case RemoveDatabase(name, id):
                if self.databases.get(name) == id:
                    del self.databases[name]

    def _collection(
        self, change: AddCollection | RemoveCollection | AlterSchema | AlterRetention
    ) -> None:
        known = self.collections.get(change.id)
        match change:
            case AddCollection():
                self._add(change, known)
            case RemoveCollection(id):
                self.collections.pop(id, None)
                self.aliases = {key: it for key, it in self.aliases.items() if it != id}
            case AlterRetention(retention=limits):
                if known is not None:
                    known.retention = limits
            case AlterSchema(schema=rows, table=table):
                if known is not None and (known.version is None or known.version < table.version):
                    known.version = table.version
                    known.rows = rows or known.rows

    def _add(self, change: AddCollection, known: NaiveCollection | None) -> None:
        version = None if change.table is None else change.table.version
        named = self._named(change.database, change.name)
        if known is not None and named is known:
            if not known.announced:
                known.announced = True
                known.version = known.version if version is None else version
                known.partitions = dict(change.partitions)
        elif known is not None or named is not None:
            self.clashes.add(("collection", change.id, change.name))
        else:
            partitions: dict[str, int] = dict(change.partitions)
            self.collections[change.id] = NaiveCollection(
                change.name,
                change.database,
                change.vchannels,
                partitions,
                rows=change.schema,
                version=version,
                retention=change.retention,
                compaction=change.compaction,
            )

    def _part(
        self,
        owner: NaiveCollection,
        change: AddPartition | RemovePartition | PutIndex | RemoveIndexes,
    ) -> None:
        match change:
            case AddPartition(collection, _, __, name, id):
                if owner.partitions.setdefault(name, id) != id:
                    self.clashes.add(("partition", collection, id))
            case RemovePartition(_, __, ___, name, id):
                if owner.partitions.get(name) == id:
                    del owner.partitions[name]
            case PutIndex(_, __, ___, index, renamed):
                for each in (index, *(() if renamed is None else (renamed,))):
                    owner.indexes[each.id] = each.name
            case RemoveIndexes(_, __, ___, ids):
                for each_id in ids:
                    owner.indexes.pop(each_id, None)

    def _named(self, database: str, name: str) -> NaiveCollection | None:
        found = self.collections.values()
        return next((it for it in found if (it.database, it.name) == (database, name)), None)


async def stored(store: MetaStore) -> NaiveTable:
    """What the records say, in the same form; whatever the table shows agrees with it."""
    table, records, found = StoredTable(store), TableRecords(store), NaiveTable()
    databases = dict(await table.databases())
    found.databases = {name: id for name, id in databases.items() if name != "default"}
    for prefix in (COLLECTION_PREFIX, IN_DATABASE_PREFIX):
        async for key, entry in all_entries(store, prefix):
            each = decode_collection(key, entry.value)
            description = await table.describe("", "", each.id)
            assert description.collection == each
            assert (await table.describe(each.database, each.name, each.id)) == description
            partitions = dict(await records.partitions(each.id))
            assert description.partitions == len(partitions), "the count is that of the partitions"
            fields = await records.schema(each.id)
            made = found.collections[each.id] = NaiveCollection.of(each)
            made.version = None if fields is None else fields.version
            made.partitions = {name: int(id) for name, id in partitions.items()}
            made.indexes = {it.id: it.name for it in await records.indexes(each.id)}
            for alias in description.aliases:
                found.aliases[each.database, alias] = each.id
    known = await StoredRetentions(store).newer(-1)
    assert known is not None
    assert known.limits == {
        vchannel: it.retention
        for it in found.collections.values()
        for vchannel in it.vchannels
        if not it.retention.keeps_all
    }, "nodes see the same limits"
    for shown in databases:
        database = "" if shown == "default" else shown
        own = {
            alias: found.collections[id].name
            for (at, alias), id in found.aliases.items()
            if at == database
        }
        assert dict(await table.aliases(database, "")) == own
    return found
