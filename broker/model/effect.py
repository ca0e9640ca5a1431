"""The effect of a stored message on collections, partitions and segments, as a value.

`broker/ports/headers.py` decodes effects from bytes. A message of any other type, or without a
collection, has no effect.
"""

from dataclasses import dataclass
from enum import IntEnum

from broker.model.ids import CollectionId, PartitionId, SegmentId
from broker.value import value

ALL_PARTITIONS = PartitionId(-1)
"""The partition of deletes, which name none."""


class SegmentLevel(IntEnum):
    """Numbers of `milvus.proto.data.SegmentLevel`: what a segment holds."""

    LEGACY = 0
    DELETES = 1
    ROWS = 2


@dataclass(frozen=True, slots=True)
class CollectionCreated:
    """The vchannel belongs to this collection from now on.

    `schema` is an encoded `milvus.proto.schema.CollectionSchema`, empty when none was sent.
    `of_rows`: the master says that its rows are Arrow's.
    """

    collection_id: CollectionId
    partition_ids: tuple[PartitionId, ...]
    schema: bytes
    schema_version: int
    of_rows: bool = False

    @property
    def default_partition_id(self) -> PartitionId | None:
        """The partition of rows that name none; None: there is none. Milvus lists it first."""
        return self.partition_ids[0] if self.partition_ids else None


@dataclass(frozen=True, slots=True)
class CollectionDropped:
    """The collection is dropped on this vchannel; its segments are flushed."""

    collection_id: CollectionId


@dataclass(frozen=True, slots=True)
class PartitionCreated:
    """Rows may go to this partition from now on. `of_rows`: of a collection of Arrow rows."""

    collection_id: CollectionId
    partition_id: PartitionId
    of_rows: bool = False


@dataclass(frozen=True, slots=True)
class PartitionDropped:
    """The partition takes no more rows; its segments are flushed. `of_rows` as above."""

    collection_id: CollectionId
    partition_id: PartitionId
    of_rows: bool = False


@dataclass(frozen=True, slots=True)
class SchemaChanged:
    """A new schema, by a schema change or an altered collection; flushes `segment_ids`."""

    collection_id: CollectionId
    schema: bytes
    schema_version: int
    segment_ids: tuple[SegmentId, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectionAltered:
    """A change of a collection that keeps its schema and segments."""

    collection_id: CollectionId


@dataclass(frozen=True, slots=True)
class Truncated:
    """The collection's contents are deleted; flushes `segment_ids`."""

    collection_id: CollectionId
    segment_ids: tuple[SegmentId, ...] = ()


@dataclass(frozen=True, slots=True)
class ManuallyFlushed:
    """Flushes `segment_ids`: all that were growing."""

    collection_id: CollectionId
    segment_ids: tuple[SegmentId, ...] = ()


@dataclass(frozen=True, slots=True)
class AllFlushed:
    """Flushes every segment of the pchannel."""


@value
class Inserted:
    """Rows of one partition. `segment_id` 0: not assigned. `schema_version` None: unknown.

    `size_bytes` 0: unknown; the log uses the message's size. Ids and `rows` are 0 for a batch
    whose producer wrote no header: the log knows them.
    """

    collection_id: CollectionId
    partition_id: PartitionId
    segment_id: SegmentId
    rows: int
    size_bytes: int
    schema_version: int | None


@value
class Deleted:
    """`rows` primary keys were deleted by a message of `size_bytes`.

    A message names no segment: `segment_id` is set by who knows the one that took it. As for
    `Inserted`, zeros stand for a batch without a header.
    """

    collection_id: CollectionId
    rows: int
    size_bytes: int = 0
    segment_id: SegmentId = SegmentId(0)


@dataclass(frozen=True, slots=True)
class SegmentCreated:
    """A segment was created and takes rows. A limit of 0: none."""

    collection_id: CollectionId
    partition_id: PartitionId
    segment_id: SegmentId
    size_bytes_max: int
    rows_max: int
    level: SegmentLevel
    schema_version: int
    storage_version: int = 0
    """The format of the segment's files, by Milvus's numbers."""


@dataclass(frozen=True, slots=True)
class SegmentFlushed:
    """A sealed segment was flushed: it is complete."""

    collection_id: CollectionId
    partition_id: PartitionId
    segment_id: SegmentId


Effect = (
    CollectionCreated
    | CollectionDropped
    | PartitionCreated
    | PartitionDropped
    | SchemaChanged
    | CollectionAltered
    | Truncated
    | ManuallyFlushed
    | AllFlushed
    | Inserted
    | Deleted
    | SegmentCreated
    | SegmentFlushed
)
