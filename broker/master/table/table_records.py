"""The records of the meta table beside those of collections, found with a few reads each.

What belongs to a collection has the collection's id in its key, and ids are never used again: a
record that a crash left behind a dropped collection belongs to nobody.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.coordinator.catalog.collection_records import CollectionRecords
from broker.coordinator.json_records import decode_fields, encode_fields
from broker.coordinator.records import collection_prefix, decode_number
from broker.model.collection import Collection
from broker.model.ids import CollectionId, PartitionId
from broker.model.master.fields import Field, FieldType, TableSchema
from broker.model.master.table_change import DEFAULT_DATABASE, Index
from broker.ports.meta import MetaStore
from broker.ports.meta_writes import all_entries

PARTITION_PREFIX: Final = "partition/"
PARTITION_COUNT_PREFIX: Final = "partition-count/"
ALIAS_PREFIX: Final = "alias/"
ALIAS_OF_PREFIX: Final = "alias-of/"
INDEX_PREFIX: Final = "index/"
SCHEMA_PREFIX: Final = "table-schema/"
DATABASE_PREFIX: Final = "database/"
CLASH_PREFIX: Final = "ddl-clash/"
REMOVED_KEY: Final = "partitions-removed"
"""Written with each removal of a partition or a collection, for those who look for them."""
TABLE_PREFIXES: Final = (
    PARTITION_PREFIX,
    PARTITION_COUNT_PREFIX,
    ALIAS_PREFIX,
    ALIAS_OF_PREFIX,
    INDEX_PREFIX,
    SCHEMA_PREFIX,
    DATABASE_PREFIX,
    CLASH_PREFIX,
)
"""Everything that a backup of the table needs beside the records of collections."""


class TableRecords:
    """Reads the records of one store; every call may raise MetaError."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self.collections = CollectionRecords(store)

    async def collection(self, database: str, name: str) -> Collection | None:
        """The collection of this name; one read."""
        found = await self.collections.by_name(name, database)
        return None if found is None else found.collection

    async def resolved(self, database: str, name: str) -> Collection | None:
        """The collection of this name or alias; up to four reads."""
        found = await self.collection(database, name)
        id = await self.aliased(database, name) if found is None else None
        return found if id is None else await self.collections.by_id(id)

    async def aliased(self, database: str, alias: str) -> CollectionId | None:
        """The collection that an alias stands for; it may have been dropped."""
        key = alias_key(database, alias)
        entry = await self._store.get(key)
        if entry is None:
            return None
        return decode_fields(key, entry.value, lambda it: CollectionId(int(it["collection"])))

    async def aliases(self, database: str) -> Sequence[tuple[str, CollectionId]]:
        """Every alias of a database, by name."""
        prefix = alias_key(database, "")
        return [
            (
                key.removeprefix(prefix),
                decode_fields(key, entry.value, lambda it: CollectionId(int(it["collection"]))),
            )
            async for key, entry in all_entries(self._store, prefix)
        ]

    async def aliases_of(self, id: CollectionId) -> Sequence[str]:
        """The aliases of one collection, by name."""
        prefix = alias_of_key(id, "")
        return [key.removeprefix(prefix) async for key, _ in all_entries(self._store, prefix)]

    async def partition(self, id: CollectionId, name: str) -> PartitionId | None:
        """A partition of the collection with this id; one read."""
        key = partition_key(id, name)
        entry = await self._store.get(key)
        return None if entry is None else decode_fields(key, entry.value, _partition_id)

    async def partitions(self, id: CollectionId) -> Sequence[tuple[str, PartitionId]]:
        """All partitions of a collection, by name."""
        prefix = partition_key(id, "")
        return [
            (key.removeprefix(prefix), decode_fields(key, entry.value, _partition_id))
            async for key, entry in all_entries(self._store, prefix)
        ]

    async def partition_count(self, id: CollectionId) -> int:
        """The number of partitions of a collection; one read."""
        key = f"{PARTITION_COUNT_PREFIX}{id}"
        entry = await self._store.get(key)
        return 0 if entry is None else decode_number(key, entry.value)

    async def removals(self) -> int:
        """A number that grows when a partition or a collection is removed; one read."""
        entry = await self._store.get(REMOVED_KEY)
        return 0 if entry is None else entry.revision

    async def schema(self, id: CollectionId) -> TableSchema | None:
        """The fields of a collection; None when it has none. One read."""
        key = f"{SCHEMA_PREFIX}{id}"
        entry = await self._store.get(key)
        return None if entry is None else decode_fields(key, entry.value, _schema)

    async def indexes(self, id: CollectionId) -> Sequence[Index]:
        """The indexes of a collection, by id."""
        prefix = f"{INDEX_PREFIX}{id}/"
        return [
            decode_fields(key, entry.value, _index)
            async for key, entry in all_entries(self._store, prefix)
        ]

    async def database(self, name: str) -> int | None:
        """The id of a database; None when there is none. At most one read."""
        if not name:
            return 0
        key = DATABASE_PREFIX + name
        entry = await self._store.get(key)
        return None if entry is None else decode_fields(key, entry.value, _database_id)

    async def databases(self) -> Sequence[tuple[str, int]]:
        """Every database with its id, by name, the default one among them."""
        found = [
            (key.removeprefix(DATABASE_PREFIX), decode_fields(key, entry.value, _database_id))
            async for key, entry in all_entries(self._store, DATABASE_PREFIX)
        ]
        return sorted([(DEFAULT_DATABASE, 0), *found])

    async def has_collections(self, database: str) -> bool:
        """Whether a database has a collection; one read."""
        return bool(await self._store.list(collection_prefix(database), limit=1))

    async def partition_counts(
        self, after: CollectionId, limit: int
    ) -> Sequence[tuple[CollectionId, int]]:
        """A page of the numbers of partitions; one read."""
        prefix = PARTITION_COUNT_PREFIX
        start = f"{prefix}{after}" if after else ""
        entries = await self._store.list(prefix, limit=limit, after=start)
        return [
            (CollectionId(int(key.removeprefix(prefix))), decode_number(key, entry.value))
            for key, entry in entries
        ]

    async def clashes(self, after: str, limit: int) -> Sequence[tuple[str, str]]:
        """A page of the changes by Milvus's clients that could not be applied: id and words."""
        start = CLASH_PREFIX + after if after else ""
        entries = await self._store.list(CLASH_PREFIX, limit=limit, after=start)
        return [
            (
                key.removeprefix(CLASH_PREFIX),
                decode_fields(key, entry.value, lambda it: str(it["cause"])),
            )
            for key, entry in entries
        ]


def partition_key(id: CollectionId, name: str) -> str:
    """The key of a partition; with no name, the prefix of all of the collection."""
    return f"{PARTITION_PREFIX}{id}/{name}"


def alias_key(database: str, alias: str) -> str:
    """The key of an alias; with no alias, the prefix of all of the database."""
    return f"{ALIAS_PREFIX}{database or DEFAULT_DATABASE}/{alias}"


def alias_of_key(id: CollectionId, alias: str) -> str:
    """The key at which an alias stands below its collection."""
    return f"{ALIAS_OF_PREFIX}{id}/{alias}"


def index_key(id: CollectionId, index: int) -> str:
    """The key of an index; padded, so that keys sort by id."""
    return f"{INDEX_PREFIX}{id}/{index:020d}"


def prefixes_of(id: CollectionId) -> tuple[str, ...]:
    """The prefixes of all records below one collection but its aliases."""
    return (partition_key(id, ""), f"{INDEX_PREFIX}{id}/")


def encode_schema(schema: TableSchema) -> bytes:
    """The record of a collection's fields."""
    return encode_fields(
        {
            "schema_version": schema.version,
            "milvus": base64.b64encode(schema.milvus).decode(),
            "fields": [
                {
                    "id": it.id,
                    "name": it.name,
                    "type": int(it.type),
                    "params": it.params,
                    "nullable": it.nullable,
                    "primary": it.primary,
                    "auto_id": it.auto_id,
                    "element": int(it.element),
                }
                for it in schema.fields
            ],
        }
    )


def encode_index(index: Index) -> bytes:
    """The record of an index."""
    return encode_fields(
        {
            "id": index.id,
            "name": index.name,
            "field": index.field,
            "field_id": index.field_id,
            "params": index.params,
        }
    )


def _index(fields: Mapping[str, Any]) -> Index:
    params = tuple((str(key), str(value)) for key, value in fields["params"])
    names = str(fields["name"]), str(fields["field"])
    return Index(int(fields["id"]), *names, int(fields["field_id"]), params)


def _schema(fields: Mapping[str, Any]) -> TableSchema:
    milvus = base64.b64decode(fields["milvus"], validate=True)
    found = tuple(_field(it) for it in fields["fields"])
    return TableSchema(found, milvus, int(fields["schema_version"]))


def _field(it: Mapping[str, Any]) -> Field:
    return Field(
        id=int(it["id"]),
        name=str(it["name"]),
        type=FieldType(it["type"]),
        params=tuple((str(key), str(value)) for key, value in it["params"]),
        nullable=bool(it["nullable"]),
        primary=bool(it["primary"]),
        auto_id=bool(it["auto_id"]),
        element=FieldType(it["element"]),
    )


def _partition_id(fields: Mapping[str, Any]) -> PartitionId:
    return PartitionId(int(fields["id"]))


def _database_id(fields: Mapping[str, Any]) -> int:
    return int(fields["id"])
