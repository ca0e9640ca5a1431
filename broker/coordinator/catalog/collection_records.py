"""The records of collections, found by name, by id and by vchannel with a few reads each.

Beside the record of a collection, at its name, stand its name at its id, and for all collections
one record of loads: the vchannels of each pchannel, and how many collections were dropped. All are
written together. `ensure_indexes` makes them for a store of a release that had records only. Until
then, or while a coordinator of that release still creates collections, an id without a name may be
of a collection all the same: then all records are read.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from broker.coordinator.catalog.compacted_collections import compaction_deletes, compaction_puts
from broker.coordinator.catalog.retained_keys import retention_deletes, retention_puts
from broker.coordinator.json_records import decode_fields, encode_fields
from broker.coordinator.records import (
    COLLECTION_ID_KEY,
    COLLECTION_PREFIX,
    FIRST_COLLECTION_ID,
    IN_DATABASE_PREFIX,
    collection_key,
    collection_prefix,
    decode_collection,
    decode_number,
    encode_collection,
    encode_number,
)
from broker.core.naming import collection_id_of, pchannel_of
from broker.model.collection import Collection
from broker.model.failure import invalid_argument
from broker.model.ids import CollectionId, PChannelName, TimeTick
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import MetaEntry, MetaStore
from broker.ports.meta_writes import SPLIT_KEYS, VALUE_BYTES_MAX, all_entries, split_write

ID_PREFIX: Final = "collection-id/"
AHEAD_MAX: Final = 8192
"""Collections that may be announced and not yet recorded: all broadcasts that run at once."""
GONE_PREFIX: Final = "collection-gone/"
LOADS_KEY: Final = "collection-loads"
ADOPTED_KEY: Final = "collections-adopted"
"""Stands while no collection of an earlier release is left that was not announced."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RecordedCollection:
    """A collection and the revision of its record."""

    collection: Collection
    revision: int


@dataclass(frozen=True, slots=True)
class Loads:
    """The vchannels of each pchannel, all drops so far, and the revision: of the last change."""

    vchannels: Mapping[PChannelName, int] = field(default_factory=dict)
    drops: int = 0
    revision: int = 0

    def added(self, collection: Collection, sign: int = 1) -> "Loads":
        """With the vchannels of one more collection; `sign` -1: without those of a dropped one."""
        counts = Counter(self.vchannels)
        for vchannel in collection.vchannels:
            counts[pchannel_of(vchannel)] += sign
        # Without those at 0 or below: an older release may have dropped some without counting.
        return Loads(+counts, self.drops + (sign < 0), self.revision)


@dataclass(frozen=True, slots=True)
class NextId:
    """The id of the next collection, and the revision of the counter."""

    id: CollectionId
    revision: int

    def counts(self, id: CollectionId) -> bool:
        """Whether the counter has reached an id like this one, or reaches it by this collection.

        A collection that a client of Milvus has made may have any id: far beyond the counter it is
        not counted, so that the ids in between are not taken for those of dropped collections.
        """
        return self.id <= id < self.id + AHEAD_MAX


class CollectionRecords:
    """The records of one store. A call that raises MetaError has changed nothing."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def by_name(self, name: str, database: str = "") -> RecordedCollection | None:
        """The collection of this name; one read."""
        key = collection_key(name, database)
        entry = await self._store.get(key)
        if entry is None:
            return None
        return RecordedCollection(decode_collection(key, entry.value), entry.revision)

    async def name_of(self, id: CollectionId) -> str | None:
        """The name of the collection with this id; one read. None if there is none.

        A few reads more when no name is found, and a read of all records when the indexes are
        missing or outdated.
        """
        place = await self._place_of(id)
        return None if place is None else place[1]

    async def _place_of(self, id: CollectionId) -> tuple[str, str] | None:
        """The database and the name of this collection."""
        place = await self._indexed_place(id)
        if place is not None or id < FIRST_COLLECTION_ID:
            return place
        if not await self._indexed():
            name = await self._scanned_name(id)
            return None if name is None else ("", name)
        # Again: the indexes may have been made between the two reads.
        return await self._indexed_place(id)

    async def _indexed_place(self, id: CollectionId) -> tuple[str, str] | None:
        key = id_key(id)
        entry = await self._store.get(key)
        return None if entry is None else decode_fields(key, entry.value, _place)

    async def _indexed(self) -> bool:
        counter, loads = await self._store.get(COLLECTION_ID_KEY), await self._store.get(LOADS_KEY)
        return _current(loads, counter)

    async def _scanned_name(self, id: CollectionId) -> str | None:
        async for key, entry in all_entries(self._store, COLLECTION_PREFIX):
            collection = decode_collection(key, entry.value)
            if collection.id == id:
                return collection.name
        return None

    async def by_id(self, id: CollectionId) -> Collection | None:
        """The collection with this id; two reads. If there is none, see `name_of`."""
        place = await self._place_of(id)
        found = None if place is None else await self.by_name(place[1], place[0])
        # Between the reads it may have been dropped, and its name given to another one.
        return found.collection if found is not None and found.collection.id == id else None

    async def by_vchannel(self, vchannel: str) -> Collection | None:
        """The collection that this is a vchannel of; two reads, because the name has the id."""
        id = collection_id_of(vchannel)
        found = None if id is None else await self.by_id(id)
        return found if found is not None and vchannel in found.vchannels else None

    async def was_dropped(self, id: CollectionId) -> bool:
        """Whether there was a collection of this id that is gone."""
        if await self.by_id(id) is not None or id < FIRST_COLLECTION_ID:
            return False
        if id >= (await self.next_id()).id:
            return await self._store.get(gone_key(id)) is not None
        # Again: it may have been created between the two reads.
        return await self.by_id(id) is None

    async def is_recorded_as_gone(self, id: CollectionId) -> bool:
        """Whether the drop of this collection was recorded; one read, or two if it was.

        False also for a drop by a release that did not record it: see `was_dropped`.
        """
        gone = await self._store.get(gone_key(id)) is not None
        return gone and await self._store.get(id_key(id)) is None

    async def dropped_at(self, vchannel: str) -> TimeTick | None:
        """The tick at which the collection of a vchannel was dropped.

        None when it was not, or by a release that did not remember this.
        """
        id = collection_id_of(vchannel)
        if id is None or (entry := await self._store.get(gone_key(id))) is None:
            return None

        def tick(fields: Mapping[str, Any]) -> TimeTick | None:
            return TimeTick(fields["tick"]) if vchannel in fields.get("vchannels", ()) else None

        return decode_fields(gone_key(id), entry.value, tick)

    async def is_known(self, id: CollectionId) -> bool:
        """Whether there is a collection of this id, or was one; up to two reads."""
        for key in (id_key(id), gone_key(id)):
            if await self._store.get(key) is not None:
                return True
        return False

    async def page(self, after: str, limit: int, database: str = "") -> Sequence[Collection]:
        """The first `limit` collections of a database by name, after this one."""
        from_key = collection_key(after, database) if after else ""
        entries = await self._store.list(collection_prefix(database), limit=limit, after=from_key)
        return [decode_collection(key, entry.value) for key, entry in entries]

    async def page_of_all(self, after: tuple[str, str], limit: int) -> Sequence[Collection]:
        """The first `limit` collections by database and name, after these; up to two reads."""
        database, name = after
        found = [] if database else [*await self.page(name, limit)]
        if len(found) < limit:
            from_key = collection_key(name, database) if database else ""
            entries = await self._store.list(
                IN_DATABASE_PREFIX, limit=limit - len(found), after=from_key
            )
            found += [decode_collection(key, entry.value) for key, entry in entries]
        return found

    async def next_id(self) -> NextId:
        """The id that the next collection gets."""
        entry = await self._store.get(COLLECTION_ID_KEY)
        if entry is None:
            return NextId(CollectionId(FIRST_COLLECTION_ID), 0)
        # The counter, not the largest id: the id of a dropped collection is not used again.
        return NextId(CollectionId(decode_number(COLLECTION_ID_KEY, entry.value)), entry.revision)

    async def loads(self) -> Loads:
        """The loads of all pchannels; one read."""
        entry = await self._store.get(LOADS_KEY)
        return Loads() if entry is None else _decode_loads(entry)

    async def create(self, collection: Collection, counter: NextId, loads: Loads) -> None:
        """Add a collection. `counter`: the next id before it.

        Conflict when the name is taken, or the counter or the loads have changed. Refused when the
        record is too large.
        """
        key = collection_key(collection.name, collection.database)
        # The counter and the loads also make two creations conflict: the second is placed anew, by
        # loads that count the first.
        next_id = collection.id + 1 if counter.counts(collection.id) else counter.id
        await self._store.write(
            {
                key: _encoded(collection),
                id_key(collection.id): _encode_place(collection),
                COLLECTION_ID_KEY: encode_number(next_id),
                LOADS_KEY: _encode_loads(loads.added(collection)),
                **retention_puts(None, collection),
                **compaction_puts(collection),
            },
            expect={key: 0, COLLECTION_ID_KEY: counter.revision, LOADS_KEY: loads.revision},
        )

    async def change(self, before: RecordedCollection, after: Collection) -> None:
        """Replace exactly `before`, with the same name and id; Conflict, Refused as in `create`."""
        key = collection_key(after.name, after.database)
        puts = {key: _encoded(after), **retention_puts(before.collection, after)}
        puts |= compaction_puts(after)
        gone = retention_deletes(before.collection, after)
        gone += compaction_deletes(before.collection, after)
        await self._store.write(puts, deletes=gone, expect={key: before.revision})

    async def drop(self, before: RecordedCollection, loads: Loads, tick: TimeTick) -> None:
        """Delete exactly `before`; Conflict when it or the loads have changed.

        `tick`: of the drop. What was stored up to it on the vchannels is then `dropped_at` it.
        """
        collection = before.collection
        key = collection_key(collection.name, collection.database)
        gone = {"tick": tick, "vchannels": list(collection.vchannels)}
        await self._store.write(
            {
                LOADS_KEY: _encode_loads(loads.added(collection, -1)),
                gone_key(collection.id): encode_fields(gone),
                **retention_puts(collection, None),
            },
            deletes=[
                *(key, id_key(collection.id)),
                *retention_deletes(collection, None),
                *compaction_deletes(collection, None),
            ],
            expect={key: before.revision, LOADS_KEY: loads.revision},
        )


def gone_key(id: CollectionId) -> str:
    """The key that remembers a dropped collection: the tick of the drop, and its vchannels."""
    return f"{GONE_PREFIX}{id}"


def id_key(id: CollectionId) -> str:
    """The key at which the name of a collection stands."""
    return f"{ID_PREFIX}{id}"


async def ensure_indexes(store: MetaStore) -> bool:
    """Make the names at ids, and the loads, of a store that has none or outdated ones.

    For the only writer of collections; False: there was nothing to do, at the cost of two reads.
    After a crash the next call begins again: the loads are written last. MetaError.
    """

    async def attempt() -> bool:
        loads, counter = await store.get(LOADS_KEY), await store.get(COLLECTION_ID_KEY)
        if counter is None or _current(loads, counter):
            return False
        counted = Loads(drops=0 if loads is None else _decode_loads(loads).drops + 1)
        names: dict[str, bytes] = {}
        stale = {key async for key, _ in all_entries(store, ID_PREFIX)}
        async for key, entry in _all_collections(store):
            collection = decode_collection(key, entry.value)
            counted = counted.added(collection)
            names[id_key(collection.id)] = _encode_place(collection)
            if len(names) == SPLIT_KEYS:
                await store.write(names)
                stale.difference_update(names)
                names = {}
        stale.difference_update(names)
        for some, gone in split_write(names, sorted(stale)):
            await store.write(some, deletes=gone)
        await store.write(
            {LOADS_KEY: _encode_loads(counted)},
            # The earlier release may have created some since.
            deletes=[ADOPTED_KEY],
            expect={
                LOADS_KEY: 0 if loads is None else loads.revision,
                COLLECTION_ID_KEY: counter.revision,
            },
        )
        log.info("collections indexed", vchannels=sum(counted.vchannels.values()))
        return True

    return await retry_conflicts(LOADS_KEY, attempt)


async def _all_collections(store: MetaStore) -> AsyncIterator[tuple[str, MetaEntry]]:
    for prefix in (COLLECTION_PREFIX, IN_DATABASE_PREFIX):
        async for each in all_entries(store, prefix, page=SPLIT_KEYS):
            yield each


def _current(loads: MetaEntry | None, counter: MetaEntry | None) -> bool:
    """Whether the indexes have every collection that the counter has counted."""
    # Each creation writes both. A release without indexes, or a restore, writes the counter alone,
    # which then has the newer revision.
    return counter is None or (loads is not None and loads.revision >= counter.revision)


def _encoded(collection: Collection) -> bytes:
    value = encode_collection(collection)
    if len(value) > VALUE_BYTES_MAX:
        raise invalid_argument(
            f"the record of collection '{collection.name}' takes {len(value)} bytes, at most"
            f" {VALUE_BYTES_MAX} are possible; use fewer columns, or shorter names and metadata"
        )
    return value


def _place(fields: Mapping[str, Any]) -> tuple[str, str]:
    return str(fields.get("database", "")), str(fields["name"])


def _encode_place(collection: Collection) -> bytes:
    database = {"database": collection.database} if collection.database else {}
    return encode_fields({"name": collection.name, **database})


def _encode_loads(loads: Loads) -> bytes:
    return encode_fields({"vchannels": dict(loads.vchannels), "drops": loads.drops})


def _decode_loads(entry: MetaEntry) -> Loads:
    def parse(fields: dict[str, Any]) -> Loads:
        counts = {PChannelName(name): int(it) for name, it in fields["vchannels"].items()}
        return Loads(counts, int(fields["drops"]), entry.revision)

    return decode_fields(LOADS_KEY, entry.value, parse)
