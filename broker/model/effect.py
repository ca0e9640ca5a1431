"""What a stored message means for collections, partitions and segments: its effect, as a value.

It owns the vocabulary of the shard state and of the recovery storage. It never reads bytes: that
is `broker/ports/headers.py`. A message whose type is not here, or that names no collection, has no
effect.
"""

from dataclasses import dataclass
from enum import IntEnum

from broker.model.ids import CollectionId, PartitionId, SegmentId

ALL_PARTITIONS = PartitionId(-1)
"""Where deletes are gathered: they name no partition."""


class SegmentLevel(IntEnum):
    """Numbers of `milvus.proto.data.SegmentLevel`: what a segment holds, as far as a log knows."""

    LEGACY = 0
    DELETES = 1
    ROWS = 2


@dataclass(frozen=True, slots=True)
class CollectionCreated:
    """The vchannel belongs to this collection from now on.

    `schema` is an encoded `milvus.proto.schema.CollectionSchema`, empty when none was sent.
    """

    collection_id: CollectionId
    partition_ids: tuple[PartitionId, ...]
    schema: bytes
    schema_version: int


@dataclass(frozen=True, slots=True)
class CollectionDropped:
    """The end of the vchannel's life; its segments are flushed by this."""

    collection_id: CollectionId


@dataclass(frozen=True, slots=True)
class PartitionCreated:
    """Rows may go to this partition from now on."""

    collection_id: CollectionId
    partition_id: PartitionId


@dataclass(frozen=True, slots=True)
class PartitionDropped:
    """No rows go to it any more; its segments are flushed by this."""

    collection_id: CollectionId
    partition_id: PartitionId


@dataclass(frozen=True, slots=True)
class SchemaChanged:
    """A schema change, or a change of a collection that brings a schema; flushes `segment_ids`."""

    collection_id: CollectionId
    schema: bytes
    schema_version: int
    segment_ids: tuple[SegmentId, ...] = ()


@dataclass(frozen=True, slots=True)
class CollectionAltered:
    """A change of a collection that leaves its schema, and its segments, as they are."""

    collection_id: CollectionId


@dataclass(frozen=True, slots=True)
class Truncated:
    """What the collection held is void; flushes `segment_ids`."""

    collection_id: CollectionId
    segment_ids: tuple[SegmentId, ...] = ()


@dataclass(frozen=True, slots=True)
class ManuallyFlushed:
    """Flushes `segment_ids`, which were all that grew."""

    collection_id: CollectionId
    segment_ids: tuple[SegmentId, ...] = ()


@dataclass(frozen=True, slots=True)
class AllFlushed:
    """Every segment of the pchannel is flushed by this."""


@dataclass(frozen=True, slots=True)
class Inserted:
    """Rows of one partition. `segment_id` 0: not assigned. `schema_version` None: not said.

    `size_bytes` 0: not said; the log fills in the message's size.
    """

    collection_id: CollectionId
    partition_id: PartitionId
    segment_id: SegmentId
    rows: int
    size_bytes: int
    schema_version: int | None


@dataclass(frozen=True, slots=True)
class Deleted:
    """So many primary keys."""

    collection_id: CollectionId
    rows: int


@dataclass(frozen=True, slots=True)
class SegmentCreated:
    """A segment that grows from here on. Limits of 0: none."""

    collection_id: CollectionId
    partition_id: PartitionId
    segment_id: SegmentId
    size_bytes_max: int
    rows_max: int
    level: SegmentLevel
    schema_version: int


@dataclass(frozen=True, slots=True)
class SegmentFlushed:
    """A segment that was sealed; no message of it comes after this."""

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
