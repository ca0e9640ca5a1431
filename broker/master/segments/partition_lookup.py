"""Who knows collections and partitions by name: asked by those who keep segments."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from broker.coordinator.catalog.collection_records import CollectionRecords
from broker.core.master.reservations import ROW_BYTES
from broker.master.segments.segment_book import SegmentBook
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId, PartitionId, SegmentId
from broker.ports.meta import MetaStore

DEFAULT_PARTITION = "_default"


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

    async def index_of(self, id: CollectionId, segment_id: SegmentId) -> int:
        """The index of the segment; 0: it has none."""
        ...


class LogPartitions:
    """A PartitionLookup over the catalog and what logs say; the only name it knows is `_default`.

    The default partition of a collection is the first one that its log created.
    """

    def __init__(self, store: MetaStore) -> None:
        self._catalog = CollectionRecords(store)
        self._book = SegmentBook(store)

    async def find(self, database: str, collection: str, partition: str) -> FoundPartition:
        """See PartitionLookup."""
        recorded = await self._catalog.by_name(collection)
        if recorded is None:
            raise unknown(f"there is no collection {collection!r}")
        id = recorded.collection.id
        partitions = await self.partitions_of(id) or ()
        if partition not in ("", DEFAULT_PARTITION) or not partitions:
            raise unknown(f"collection {collection!r} has no partition {partition!r}")
        return FoundPartition(id, min(partitions), DEFAULT_PARTITION, ROW_BYTES)

    async def partitions_of(self, id: CollectionId) -> Collection[PartitionId] | None:
        """See PartitionLookup."""
        logged = await self._book.vchannels_of(id)
        if logged:
            return frozenset([it for vchannel in logged for it in vchannel.partition_ids])
        return None if await self._catalog.by_id(id) is None else frozenset()

    async def index_of(self, id: CollectionId, segment_id: SegmentId) -> int:
        """See PartitionLookup."""
        return 0


def unknown(what: str) -> Refused:
    """The refusal of a name or an id that nothing has."""
    return Refused(StreamingCode.CHANNEL_NOT_EXIST, what)
