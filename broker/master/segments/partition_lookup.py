"""Finds collections and partitions for those who keep segments: in the meta table, and in logs."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from broker.core.master.reservations import ROW_BYTES
from broker.core.master.row_size import row_bytes
from broker.master.segments.segment_book import SegmentBook
from broker.master.table.table_records import TableRecords
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId, PartitionId
from broker.model.master.fields import Field, TableSchema
from broker.model.master.table_change import DEFAULT_PARTITION
from broker.ports.meta import MetaStore

SYSTEM_FIELDS: Final = ((5, 0), (5, 0))
"""RowID and Timestamp, which every row has."""


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A partition of a collection, and the estimated size of its rows."""

    collection_id: CollectionId
    partition_id: PartitionId
    name: str
    row_bytes: int


class PartitionLookup(Protocol):
    """Answers from the records; raises MetaError when they cannot be read."""

    async def find(self, database: str, collection: str, partition: str) -> FoundPartition:
        """The partition by names, "" for `_default`. Refused(CHANNEL_NOT_EXIST) if unknown."""
        ...

    async def partitions_of(self, id: CollectionId) -> Collection[PartitionId] | None:
        """The partitions of a collection; None if there is no such collection."""
        ...

    async def removals(self) -> int:
        """A number that grows when the table loses a partition or a collection; one read."""
        ...

    async def index_of(self, id: CollectionId) -> int:
        """The index that segments of the collection have; 0: none."""
        ...


class KnownPartitions:
    """A PartitionLookup over the meta table and over what logs say.

    A collection may be in its log alone: a client of Milvus created it there. Its partitions have
    no names; `_default` is the first one that the log created.
    """

    def __init__(self, store: MetaStore) -> None:
        self._table = TableRecords(store)
        self._book = SegmentBook(store)

    async def find(self, database: str, collection: str, partition: str) -> FoundPartition:
        """See PartitionLookup."""
        found = await self._table.resolved(database, collection)
        if found is None:
            raise unknown(f"there is no collection {collection!r}")
        name = partition or DEFAULT_PARTITION
        id = await self._table.partition(found.id, name)
        if id is None and name == DEFAULT_PARTITION:
            id = min(await self._logged(found.id), default=None)
        if id is None:
            raise unknown(f"collection {collection!r} has no partition {name!r}")
        size = _row_bytes(await self._table.schema(found.id))
        return FoundPartition(found.id, id, name, size)

    async def partitions_of(self, id: CollectionId) -> Collection[PartitionId] | None:
        """See PartitionLookup."""
        known = [partition for _, partition in await self._table.partitions(id)]
        logged = await self._logged(id)
        if known or logged:
            return frozenset([*known, *logged])
        return None if await self._table.collections.by_id(id) is None else frozenset()

    async def removals(self) -> int:
        """See PartitionLookup."""
        return await self._table.removals()

    async def index_of(self, id: CollectionId) -> int:
        """See PartitionLookup. Of several, the oldest."""
        indexes = await self._table.indexes(id)
        return indexes[0].id if indexes else 0

    async def _logged(self, id: CollectionId) -> list[PartitionId]:
        vchannels = await self._book.vchannels_of(id)
        return [partition for each in vchannels for partition in each.partition_ids]


def unknown(what: str) -> Refused:
    """The refusal of a name or an id that nothing has."""
    return Refused(StreamingCode.CHANNEL_NOT_EXIST, what)


def _row_bytes(schema: TableSchema | None) -> int:
    if schema is None:
        return ROW_BYTES
    return row_bytes([*SYSTEM_FIELDS, *[(int(it.type), _dim(it)) for it in schema.fields]])


def _dim(field: Field) -> int:
    text = field.dim
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0
