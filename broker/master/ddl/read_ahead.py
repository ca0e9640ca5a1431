"""What plans are going to read, read at once: a round trip to the store each takes longer."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from broker.coordinator.catalog.collection_records import LOADS_KEY, gone_key, id_key
from broker.coordinator.records import COLLECTION_ID_KEY, collection_key, decode_collection
from broker.master.table.table_records import (
    DATABASE_PREFIX,
    PARTITION_COUNT_PREFIX,
    SCHEMA_PREFIX,
    alias_key,
    partition_key,
)
from broker.model.ids import CollectionId
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
from broker.ports.meta import MetaEntry, MetaStore, get_many


class ReadAhead:
    """A MetaStore in front of another one, which keeps what was read until `forget`.

    For plans: what others write meanwhile concerns names that these do not hold, and the places and
    ids of their collections are remembered by the planner.
    """

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._known: dict[str, MetaEntry | None] = {}

    async def read(self, ddls: Sequence[Ddl], next_id: CollectionId) -> None:
        """Read what the plans of these need; `next_id`: of a new collection. MetaError."""
        named: list[tuple[Ddl, str]] = []
        first: list[str] = []
        for ddl in ddls:
            name, keys = _first_keys(ddl, next_id)
            named.append((ddl, name))
            first += keys
            if isinstance(ddl, CreateCollection):
                next_id = CollectionId(next_id + 1)
        await self._fetch(first)
        below: list[str] = []
        for ddl, name in named:
            entry = self._known.get(name)
            if entry is not None:
                below += _keys_below(ddl, decode_collection(name, entry.value).id)
        await self._fetch(below)

    def forget(self) -> None:
        """Ask the store again from here on."""
        self._known = {}

    async def get(self, key: str) -> MetaEntry | None:
        """See MetaStore."""
        return self._known[key] if key in self._known else await self._store.get(key)

    async def list(
        self, prefix: str, *, limit: int, after: str = ""
    ) -> Sequence[tuple[str, MetaEntry]]:
        """See MetaStore."""
        return await self._store.list(prefix, limit=limit, after=after)

    async def write(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        expect: Mapping[str, int] | None = None,
    ) -> int:
        """See MetaStore."""
        self.forget()
        return await self._store.write(puts, deletes=deletes, expect=expect)

    async def close(self) -> None:
        """Keeps the store open: it belongs to others."""

    async def _fetch(self, keys: Sequence[str]) -> None:
        unknown = [it for it in dict.fromkeys(keys) if it not in self._known]
        if unknown:
            self._known |= zip(unknown, await get_many(self._store, unknown), strict=True)


def _first_keys(ddl: Ddl, next_id: CollectionId) -> tuple[str, list[str]]:
    """The key of the collection that is changed, "" without one, and all keys known by now."""
    match ddl:
        case CreateCollection(name, database=database):
            of_database = [DATABASE_PREFIX + database] if database else []
            counted = [COLLECTION_ID_KEY, LOADS_KEY, id_key(next_id), gone_key(next_id)]
            taken = [collection_key(name, database), alias_key(database, name)]
            return "", [*of_database, *taken, *counted]
        case CreateAlias(collection, alias, database=database):
            key = collection_key(collection, database)
            return key, [key, collection_key(alias, database), alias_key(database, alias)]
        case AdoptCollection(name):
            key = collection_key(name)
            return key, [key]
        case (
            DropCollection(name, database=database)
            | ChangeSchema(name, database=database)
            | ChangeRetention(name, database=database)
            | ChangeCompaction(name, database=database)
            | CreatePartition(name, database=database)
            | DropPartition(name, database=database)
            | CreateIndex(name, database=database)
            | DropIndex(name, database=database)
        ):
            key = collection_key(name, database)
            return key, [key]
        case DropAlias() | CreateDatabase() | DropDatabase() | GivenBroadcast():
            return "", []
        case _:
            assert_never(ddl)


def _keys_below(ddl: Ddl, id: CollectionId) -> list[str]:
    """Keys below the collection that is changed."""
    match ddl:
        case CreatePartition(partition=name) | DropPartition(partition=name):
            keys = [partition_key(id, name), f"{PARTITION_COUNT_PREFIX}{id}"]
            return [*keys, f"{SCHEMA_PREFIX}{id}"]
        case DropCollection() | CreateIndex():
            return [f"{SCHEMA_PREFIX}{id}"]
        case _:
            return []
