"""Whether the records of a change fit the store, which is decided before the change is recorded."""

from typing import Final

from broker.coordinator.records import encode_collection
from broker.master.table.leftovers import FIRST_PARTITIONS_MAX
from broker.master.table.table_records import encode_index, encode_schema
from broker.model.collection import Collection
from broker.model.master.fields import TableSchema
from broker.model.master.table_change import AddCollection, AlterSchema, PutIndex, TableChange
from broker.ports.meta_writes import VALUE_BYTES_MAX

CHANGE_BYTES_MAX: Final = VALUE_BYTES_MAX * 3 // 4
"""Of all records of one change, which share a write with other changes."""
_PARTITION_BYTES: Final = 6 * 255 + 200
"""Of a partition's record and key: a character takes up to 6 bytes in JSON."""


def record_problem(change: TableChange) -> str:
    """Why the records of this change cannot be stored; "" if they can."""
    size = _size(change)
    if size <= CHANGE_BYTES_MAX:
        return ""
    return (
        f"the records of the change take {size} bytes, at most {CHANGE_BYTES_MAX} are possible;"
        " use fewer fields, or shorter names and parameters"
    )


def _size(change: TableChange) -> int:
    match change:
        case AddCollection():
            made = Collection(
                change.name, change.id, change.vchannels, 0, change.schema, change.database
            )
            first = min(len(change.partitions), FIRST_PARTITIONS_MAX) * _PARTITION_BYTES
            return len(encode_collection(made)) + _schema_size(change.table) + first
        case AlterSchema():
            bare = Collection(change.name, change.id, (), 0, change.schema, change.database)
            return len(encode_collection(bare)) + _schema_size(change.table)
        case PutIndex(index=index, renamed=renamed):
            return sum(len(encode_index(it)) for it in (index, renamed) if it is not None)
        case _:
            return 0


def _schema_size(table: TableSchema | None) -> int:
    return 0 if table is None else len(encode_schema(table))
