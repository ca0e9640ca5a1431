"""What each change writes. Applied already, it writes nothing: every change names what it is by id.

A change that does not fit the table, because a client of Milvus gave it a name or an id that is
taken, is written down as a clash instead.
"""

from dataclasses import replace
from typing import assert_never

from broker.coordinator.catalog.collection_records import RecordedCollection, id_key
from broker.coordinator.json_records import encode_fields
from broker.coordinator.records import encode_number
from broker.master.table.leftovers import FIRST_PARTITIONS_MAX, INDEXES_AT_ONCE
from broker.master.table.record_sizes import record_problem
from broker.master.table.table_records import (
    CLASH_PREFIX,
    DATABASE_PREFIX,
    PARTITION_COUNT_PREFIX,
    REMOVED_KEY,
    SCHEMA_PREFIX,
    TableRecords,
    alias_key,
    alias_of_key,
    encode_index,
    encode_schema,
    index_key,
    partition_key,
)
from broker.model.collection import Collection
from broker.model.ids import TICK_LOGICAL_BITS, CollectionId, PartitionId, TimeTick
from broker.model.master.table_change import (
    DEFAULT_PARTITION,
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
from broker.ports.meta import MetaStore


class ChangeWriter:
    """Applies changes to a store: a group of writes, whose reads show its own changes."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._records = TableRecords(store)

    async def apply(self, change: TableChange, tick: TimeTick) -> None:
        """`tick`: of the copy on the control channel. MetaError, Conflict."""
        # Planned changes fit. One of an earlier release, or of another cluster, must not hold its
        # names for ever.
        if problem := record_problem(change):
            await self._note(f"size/{type(change).__name__}/{tick}", problem)
            return
        match change:
            case AddCollection():
                await self._add_collection(change, tick)
            case RemoveCollection():
                await self._remove_collection(change, tick)
            case AlterSchema():
                await self._alter_schema(change)
            case AlterRetention() | AlterCompaction():
                await self._alter_cleanup(change)
            case AddPartition() | RemovePartition():
                await self._partition(change)
            case PointAlias() | RemoveAlias():
                await self._alias(change)
            case PutIndex() | RemoveIndexes():
                await self._index(change)
            case AddDatabase() | RemoveDatabase():
                await self._database(change)
            case _:
                assert_never(change)

    # ---- collections ---------------------------------------------------------------------------

    async def _add_collection(self, change: AddCollection, tick: TimeTick) -> None:
        collections = self._records.collections
        before = await collections.by_name(change.name, change.database)
        if before is not None and before.collection.id == change.id:
            await self._adopt(before, change, tick)
            return
        taken = await collections.by_id(change.id)
        # An id below the counter may be of a creation that others, with larger ids, have overtaken.
        if before is not None or taken is not None:
            await self._clash(change, before, taken)
            return
        created = Collection(
            change.name,
            change.id,
            change.vchannels,
            tick >> TICK_LOGICAL_BITS,
            change.schema,
            change.database,
            _default_partition(change),
            tick,
            change.retention,
            change.compaction,
        )
        counter, loads = await collections.next_id(), await collections.loads()
        await collections.create(created, counter, loads)
        await self._add_parts(change)

    async def _adopt(
        self, before: RecordedCollection, change: AddCollection, tick: TimeTick
    ) -> None:
        """A collection of an earlier release gets its partition; one applied already nothing."""
        if before.collection.announced:
            return
        adopted = replace(
            before.collection, default_partition=_default_partition(change), created_tick=tick
        )
        await self._records.collections.change(before, adopted)
        await self._add_parts(change)

    async def _add_parts(self, change: AddCollection) -> None:
        id = change.id
        puts = {
            partition_key(id, name): encode_fields({"id": partition})
            for name, partition in change.partitions[:FIRST_PARTITIONS_MAX]
        }
        puts[f"{PARTITION_COUNT_PREFIX}{id}"] = encode_number(len(change.partitions))
        if change.table is not None:
            puts[f"{SCHEMA_PREFIX}{id}"] = encode_schema(change.table)
        await self._store.write(puts)

    async def _remove_collection(self, change: RemoveCollection, tick: TimeTick) -> None:
        collections = self._records.collections
        found = await collections.by_id(change.id)
        if found is None:
            return
        before = await collections.by_name(found.name, found.database)
        assert before is not None, change
        await collections.drop(before, await collections.loads(), tick)
        id = change.id
        await self._store.write(
            {REMOVED_KEY: encode_number(id)},
            deletes=[f"{SCHEMA_PREFIX}{id}", f"{PARTITION_COUNT_PREFIX}{id}"],
        )

    async def _alter_schema(self, change: AlterSchema) -> None:
        found = await self._records.collections.by_id(change.id)
        known = await self._records.schema(change.id)
        if found is None or (known is not None and known.version >= change.table.version):
            return
        before = await self._records.collections.by_name(found.name, found.database)
        assert before is not None, change
        if change.schema is not None:
            after = replace(before.collection, schema=change.schema)
            await self._records.collections.change(before, after)
        await self._put(f"{SCHEMA_PREFIX}{change.id}", encode_schema(change.table))

    async def _alter_cleanup(self, change: AlterRetention | AlterCompaction) -> None:
        found = await self._records.collections.by_id(change.id)
        if found is None:
            return
        before = await self._records.collections.by_name(found.name, found.database)
        assert before is not None, change
        if isinstance(change, AlterRetention):
            after = replace(before.collection, retention=change.retention)
        else:
            after = replace(before.collection, compaction=change.compaction)
        if after != before.collection:
            await self._records.collections.change(before, after)

    async def _database(self, change: AddDatabase | RemoveDatabase) -> None:
        known, key = await self._records.database(change.name), DATABASE_PREFIX + change.name
        if isinstance(change, AddDatabase):
            if known is None:
                await self._put(key, encode_fields({"id": change.id}))
        elif known == change.id:
            await self._store.write({}, deletes=[key])

    # ---- what a collection has ------------------------------------------------------------------

    async def _partition(self, change: AddPartition | RemovePartition) -> None:
        id = change.collection
        if not await self._exists(id):
            return
        known = await self._records.partition(id, change.name)
        count, count_key = await self._records.partition_count(id), f"{PARTITION_COUNT_PREFIX}{id}"
        key = partition_key(id, change.name)
        if isinstance(change, AddPartition):
            if known is None:
                puts = {key: encode_fields({"id": change.id}), count_key: encode_number(count + 1)}
                await self._store.write(puts)
            elif known != change.id:
                text = f"partition '{change.name}' of collection {id} has id {known} already"
                await self._note(f"partition/{id}/{change.id}", text)
        elif known == change.id:
            puts = {count_key: encode_number(count - 1), REMOVED_KEY: encode_number(id)}
            await self._store.write(puts, deletes=[key])

    async def _alias(self, change: PointAlias | RemoveAlias) -> None:
        key = alias_key(change.database, change.alias)
        before = await self._records.aliased(change.database, change.alias)
        deletes = [] if before is None else [alias_of_key(before, change.alias)]
        if isinstance(change, RemoveAlias):
            if before is not None:
                await self._store.write({}, deletes=[key, *deletes])
            return
        if before == change.collection or not await self._exists(change.collection):
            return
        if await self._records.collection(change.database, change.alias) is not None:
            text = f"alias '{change.alias}' is the name of a collection"
            await self._note(f"alias/{change.collection}/{change.alias}", text)
            return
        own = alias_of_key(change.collection, change.alias)
        puts = {
            key: encode_fields({"collection": change.collection}),
            own: encode_fields({"database": change.database}),
        }
        await self._store.write(puts, deletes=deletes)

    async def _index(self, change: PutIndex | RemoveIndexes) -> None:
        id = change.collection
        if not await self._exists(id):
            return
        if isinstance(change, RemoveIndexes):
            if change.ids:
                await self._store.write(
                    {}, deletes=[index_key(id, it) for it in change.ids[:INDEXES_AT_ONCE]]
                )
            return
        put = [change.index, *([] if change.renamed is None else [change.renamed])]
        await self._store.write({index_key(id, it.id): encode_index(it) for it in put})

    async def _exists(self, id: CollectionId) -> bool:
        return await self._store.get(id_key(id)) is not None

    # ---- clashes -------------------------------------------------------------------------------

    async def _clash(
        self, change: AddCollection, before: RecordedCollection | None, taken: Collection | None
    ) -> None:
        if before is not None:
            why = f"the name is taken by collection {before.collection.id}"
        else:
            why = f"the id is taken by collection '{'' if taken is None else taken.name}'"
        text = f"collection '{change.name}' with id {change.id} was broadcast, but {why}"
        await self._note(f"collection/{change.id}/{change.name}", text)

    async def _note(self, what: str, cause: str) -> None:
        await self._put(CLASH_PREFIX + what, encode_fields({"cause": cause}))

    async def _put(self, key: str, value: bytes) -> None:
        await self._store.write({key: value})


def _default_partition(change: AddCollection) -> PartitionId:
    ids = dict(change.partitions)
    first = next(iter(ids.values()), PartitionId(0))
    return ids.get(DEFAULT_PARTITION, first)
