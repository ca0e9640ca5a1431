"""Segments as the master knows them, and the reservations of rows in them, as values."""

from dataclasses import dataclass
from enum import Enum

from broker.model.effect import SegmentLevel
from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick


class SegmentMetaState(Enum):
    """GROWING takes rows; SEALED takes none and is not complete yet; FLUSHED is complete."""

    GROWING = "growing"
    SEALED = "sealed"
    FLUSHED = "flushed"
    DROPPED = "dropped"


class SegmentOrigin(Enum):
    """Who decides what goes into a segment: the log of a vchannel, or reservations."""

    LOG = "log"
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True)
class SegmentMeta:
    """One segment. `channel_start`, `channel_end`: the numbers of the pchannels it takes rows from.

    `open_tick` and `close_tick` (0: open) are those of its CreateSegment and its Flush, or of the
    reservation that opened it and the tick that closed it. `rows`, `size_bytes`: as of
    `modified_tick`. `partition_tag`: the name, where it is known. `vchannel`: empty for RESERVED.
    A limit of 0: none.
    """

    id: SegmentId
    collection_id: CollectionId
    partition_id: PartitionId
    partition_tag: str
    channel_start: int
    channel_end: int
    open_tick: TimeTick
    close_tick: TimeTick
    rows: int
    size_bytes: int
    modified_tick: TimeTick
    state: SegmentMetaState
    origin: SegmentOrigin
    level: SegmentLevel = SegmentLevel.ROWS
    vchannel: str = ""
    rows_max: int = 0
    size_bytes_max: int = 0


@dataclass(frozen=True, slots=True)
class VChannelMeta:
    """A vchannel with a collection, as its log created it. `dropped`: the collection is gone."""

    name: str
    collection_id: CollectionId
    partition_ids: tuple[PartitionId, ...]
    dropped: bool
