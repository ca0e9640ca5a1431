"""Reservations of rows in segments, as values: requests, answers and statistics."""

from dataclasses import dataclass

from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick
from broker.value import value


@dataclass(frozen=True, slots=True)
class RowsWanted:
    """`count` rows of a partition that arrive on the pchannel of number `channel`.

    `row_bytes`: the estimated size of one row, by the schema.
    """

    collection_id: CollectionId
    partition_id: PartitionId
    partition_tag: str
    channel: int
    count: int
    row_bytes: int


@value
class ReservedRows:
    """Room for `rows` rows. Rows with a tick above `expire_tick` must not use it."""

    segment_id: SegmentId
    rows: int
    expire_tick: TimeTick


@dataclass(frozen=True, slots=True)
class OpenReservations:
    """Statistics of one open segment: what is reserved in it and not expired.

    `size_bytes`, `last_tick`: the estimated size of these rows, and when the last were reserved.
    """

    segment_id: SegmentId
    rows: int
    size_bytes: int
    last_tick: TimeTick


@dataclass(frozen=True, slots=True)
class SegmentStatistics:
    """What a query node knows of a segment that it has loaded; its counts include all rows."""

    segment_id: SegmentId
    memory_bytes: int
    rows: int
    recently_modified: bool


@dataclass(frozen=True, slots=True)
class SegmentOrders:
    """What the master knows of growing segments of a pchannel, for its owner.

    `binlogs`: files that writers have made of a segment so far. `seal`, `seal_collections`: these
    segments, or all growing ones of these collections, take no more rows.
    """

    binlogs: tuple[tuple[SegmentId, int], ...] = ()
    seal: tuple[SegmentId, ...] = ()
    seal_collections: tuple[CollectionId, ...] = ()
