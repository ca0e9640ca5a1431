"""What one write cannot take: many first partitions, many dropped indexes, and all that a dropped
collection leaves.

Both are records below the id of a collection, which nobody finds without the collection's own.
"""

from typing import Final

from broker.coordinator.json_records import decode_fields, encode_fields
from broker.master.table.table_records import (
    TableRecords,
    alias_key,
    alias_of_key,
    index_key,
    partition_key,
    prefixes_of,
)
from broker.model.ids import CollectionId
from broker.model.master.table_change import AddCollection, RemoveIndexes
from broker.ports.meta import MetaStore
from broker.ports.meta_writes import all_entries, split_write

FIRST_PARTITIONS_MAX: Final = 16
"""Of a creation: these are written with the collection."""
INDEXES_AT_ONCE: Final = 40
"""Of a drop of indexes: these are deleted with other changes, the rest after them."""


async def write_ahead(store: MetaStore, change: AddCollection) -> None:
    """Store the partitions beyond the first few, before the collection itself. MetaError."""
    many = change.partitions[FIRST_PARTITIONS_MAX:]
    if not many or await TableRecords(store).collections.name_of(change.id) is not None:
        return
    puts = {partition_key(change.id, name): encode_fields({"id": id}) for name, id in many}
    for some, _ in split_write(puts):
        await store.write(some)


async def remove_more_indexes(store: MetaStore, change: RemoveIndexes) -> None:
    """Delete the indexes beyond the first few; a repeat deletes what a crash left. MetaError."""
    more = [index_key(change.collection, it) for it in change.ids[INDEXES_AT_ONCE:]]
    for _, some in split_write({}, more):
        await store.write({}, deletes=some)


async def remove_leftovers(store: MetaStore, id: CollectionId) -> None:
    """Delete the partitions, indexes and aliases of a collection that is gone. MetaError.

    Nobody finds them any more, so a crash in between does no harm, and a repeat deletes the rest.
    """
    gone = [key for prefix in prefixes_of(id) async for key, _ in all_entries(store, prefix)]
    records = TableRecords(store)
    own = alias_of_key(id, "")
    async for key, entry in all_entries(store, own):
        database = decode_fields(key, entry.value, lambda it: str(it["database"]))
        alias = key.removeprefix(own)
        # It may stand for another collection by now.
        if await records.aliased(database, alias) == id:
            gone.append(alias_key(database, alias))
        gone.append(key)
    for _, some in split_write({}, gone):
        await store.write({}, deletes=some)
