"""The messages of the actors of segments. Requests that fail raise Refused."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from actors import Request
from broker.model.failure import Refusal
from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick
from broker.model.master.reservation import SegmentStatistics
from broker.model.master.segment_meta import SegmentMeta

PAGE: Final = 200
IDS_MAX: Final = 1000
"""Segments that one request names."""


@dataclass(frozen=True, slots=True)
class SegmentsPage:
    """Segments of a list; `more`: there are others behind them."""

    segments: tuple[SegmentMeta, ...]
    more: bool


# ---- SegmentReader ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShowSegments(Request[SegmentsPage]):
    """Segments of a partition, None: of all, by partition and id; or of all collections, with 0.

    `after`: the last one of the page before. Refused(CHANNEL_NOT_EXIST) for an unknown collection,
    or a partition that is not in it.
    """

    collection_id: CollectionId
    partition_id: PartitionId | None = None
    after: SegmentId = SegmentId(0)
    limit: int = PAGE


@dataclass(frozen=True, slots=True)
class FindSegments(Request[tuple[SegmentMeta | None, ...]]):
    """Segments by id, in this order; None for one that does not exist."""

    ids: tuple[SegmentId, ...]


@dataclass(frozen=True, slots=True)
class DescribeSegment(Request[tuple[SegmentMeta, int]]):
    """A segment and its index, 0 without one.

    Refused(CHANNEL_NOT_EXIST) for an unknown collection, or a segment that is not in it.
    """

    collection_id: CollectionId
    segment_id: SegmentId


@dataclass(frozen=True, slots=True)
class ListFlushes(Request[SegmentsPage]):
    """Flushed segments that nobody has acknowledged, oldest flush first."""

    after: SegmentId = SegmentId(0)
    limit: int = PAGE


SegmentReaderMessage = ShowSegments | FindSegments | DescribeSegment | ListFlushes

# ---- SegmentKeeper ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowsAsked:
    """`count` rows that will arrive on a channel, for a partition given by names."""

    count: int
    channel: str
    collection: str
    partition: str
    database: str = ""


@dataclass(frozen=True, slots=True)
class RowsAssigned:
    """A segment with room for the rows until `expire_tick`."""

    segment_id: SegmentId
    collection_id: CollectionId
    partition_id: PartitionId
    expire_tick: TimeTick


@dataclass(frozen=True, slots=True)
class AssignRows(Request[tuple[RowsAssigned | Refusal, ...]]):
    """Reserve rows; one answer each, in this order."""

    asked: tuple[RowsAsked, ...]


@dataclass(frozen=True, slots=True)
class StatisticsCounted:
    """How many segments took the statistics; `unknown` ones did not."""

    updated: int
    ignored: int
    unknown: tuple[SegmentId, ...]


@dataclass(frozen=True, slots=True)
class CountStatistics(Request[StatisticsCounted]):
    """What a query node has loaded."""

    node: int
    tick: TimeTick
    segments: tuple[SegmentStatistics, ...]


@dataclass(frozen=True, slots=True)
class CountBinlogs(Request[tuple[SegmentId, ...]]):
    """How many files writers have made of segments; answered with those that do not grow."""

    counts: tuple[tuple[SegmentId, int], ...]


@dataclass(frozen=True, slots=True)
class CollectionSealed:
    """Segments with reservations that are sealed, and the vchannels whose owners seal theirs."""

    segment_ids: tuple[SegmentId, ...]
    vchannels: int


@dataclass(frozen=True, slots=True)
class SealCollection(Request[CollectionSealed]):
    """Seal all growing segments of a collection. Refused(CHANNEL_NOT_EXIST) if it is unknown.

    Refused(INNER) while the owner of one of its vchannels cannot be reached: try again.
    """

    collection_id: CollectionId


@dataclass(frozen=True, slots=True)
class AcknowledgeFlushes(Request[tuple[SegmentId, ...]]):
    """The reader of flushes has these; answered with those that are not flushed."""

    ids: tuple[SegmentId, ...]


@dataclass(frozen=True, slots=True)
class PassTicks:
    """A timer: drop reservations that have expired, close sealed segments."""


@dataclass(frozen=True, slots=True)
class LookForDrops:
    """A timer: drop the segments of collections and partitions that are gone."""


@dataclass(frozen=True, slots=True)
class TidySegments:
    """A timer: repeat orders to owners, and forget segments that ended long ago."""


SegmentKeeperMessage = (
    AssignRows
    | CountStatistics
    | CountBinlogs
    | SealCollection
    | AcknowledgeFlushes
    | PassTicks
    | LookForDrops
    | TidySegments
)


def ids_of(metas: Sequence[SegmentMeta]) -> tuple[SegmentId, ...]:
    """The ids of segments."""
    return tuple([each.id for each in metas])
