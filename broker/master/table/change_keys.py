"""What the application of a change reads, so that changes that wait together are read at once."""

from typing import assert_never

from broker.coordinator.catalog.collection_records import LOADS_KEY, id_key
from broker.coordinator.records import COLLECTION_ID_KEY, collection_key
from broker.master.table.table_records import (
    DATABASE_PREFIX,
    PARTITION_COUNT_PREFIX,
    SCHEMA_PREFIX,
    alias_key,
    partition_key,
)
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


def keys_read(change: TableChange) -> tuple[str, ...]:
    """All keys, most often; one that is missing here is read when it is asked for."""
    match change:
        case AddCollection() | RemoveCollection():
            key = collection_key(change.name, change.database)
            return key, id_key(change.id), COLLECTION_ID_KEY, LOADS_KEY
        case AlterSchema():
            key = collection_key(change.name, change.database)
            return key, id_key(change.id), f"{SCHEMA_PREFIX}{change.id}"
        case AlterRetention() | AlterCompaction():
            return collection_key(change.name, change.database), id_key(change.id)
        case AddPartition() | RemovePartition():
            id = change.collection
            count_key = f"{PARTITION_COUNT_PREFIX}{id}"
            return id_key(id), partition_key(id, change.name), count_key
        case PointAlias():
            key = collection_key(change.alias, change.database)
            return id_key(change.collection), alias_key(change.database, change.alias), key
        case RemoveAlias():
            return (alias_key(change.database, change.alias),)
        case PutIndex() | RemoveIndexes():
            return (id_key(change.collection),)
        case AddDatabase() | RemoveDatabase():
            return (DATABASE_PREFIX + change.name,)
        case _:
            assert_never(change)
