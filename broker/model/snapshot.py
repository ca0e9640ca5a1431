"""What a node remembers of one pchannel across restarts, as values.

Every object carries the tick of the newest message it includes, and a replay skips messages up to
that tick. So it does not matter how far back a replay starts.
"""

from dataclasses import dataclass
from enum import Enum

from broker.model.effect import SegmentLevel
from broker.model.groups.consumer_group import GroupKey, GroupSnapshot
from broker.model.ids import (
    CollectionId,
    MessageId,
    PartitionId,
    SegmentId,
    TimeTick,
    VChannelName,
)
from broker.model.message import AppendedInTxn
from broker.model.producer_numbers import ProducedBatch
from broker.model.retention.compaction import Compacted
from broker.model.retention.purge import Purge
from broker.value import value


class VChannelState(Enum):
    """Whether a vchannel's collection is still there."""

    NORMAL = "normal"
    DROPPED = "dropped"


class SegmentState(Enum):
    """Whether a segment still takes rows."""

    GROWING = "growing"
    FLUSHED = "flushed"


class TxnEnd(Enum):
    """How a transaction ended; EXPIRED: rolled back by the log itself, for whatever reason."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    EXPIRED = "expired"


@value
class WalCheckpoint:
    """The snapshot includes everything up to `tick`; all the rest is at `id` or later.

    `id` is the last confirmed id of the newest message included, so a replay from there also reads
    every transaction that was open, from its begin.
    """

    id: MessageId
    tick: TimeTick


@dataclass(frozen=True, slots=True)
class SchemaStart:
    """A version of a collection's schema, as it was sent, and the tick from which it is valid."""

    version: int
    schema: bytes
    start_tick: TimeTick


@dataclass(frozen=True, slots=True)
class VChannelSnapshot:
    """A vchannel with a collection. `schemas`: those that may still be needed, oldest first.

    `default_partition_id`: of batches whose producer names no partition; None: there is none.
    """

    name: VChannelName
    collection_id: CollectionId
    state: VChannelState
    partition_ids: tuple[PartitionId, ...]
    schemas: tuple[SchemaStart, ...]
    created_tick: TimeTick
    tick: TimeTick
    default_partition_id: PartitionId | None = None


@value
class SegmentSnapshot:
    """A segment and how much it holds. A limit of 0: none. `modified_tick`: its newest rows."""

    id: SegmentId
    vchannel: VChannelName
    collection_id: CollectionId
    partition_id: PartitionId
    state: SegmentState
    level: SegmentLevel
    schema_version: int
    rows: int
    size_bytes: int
    rows_max: int
    size_bytes_max: int
    created_tick: TimeTick
    modified_tick: TimeTick
    tick: TimeTick

    def grown(self, rows: int, size_bytes: int, tick: TimeTick) -> "SegmentSnapshot":
        """The segment with more rows in it, placed at this tick."""
        # Not `replace`, which takes four times as long: a replay calls this for every message.
        return SegmentSnapshot(
            self.id,
            self.vchannel,
            self.collection_id,
            self.partition_id,
            self.state,
            self.level,
            self.schema_version,
            self.rows + rows,
            self.size_bytes + size_bytes,
            self.rows_max,
            self.size_bytes_max,
            self.created_tick,
            tick,
            tick,
        )


@dataclass(frozen=True, slots=True)
class FinishedTxn:
    """A transaction that ended, and the answer to a repeated commit or rollback."""

    vchannel: str
    begin_id: MessageId
    bodies: int
    end: TxnEnd
    outcome: AppendedInTxn


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One pchannel as of `checkpoint`; None: there is none, or part of it cannot be read.

    Without a checkpoint, each object is still valid up to its own tick.
    """

    checkpoint: WalCheckpoint | None = None
    vchannels: tuple[VChannelSnapshot, ...] = ()
    segments: tuple[SegmentSnapshot, ...] = ()
    finished: tuple[FinishedTxn, ...] = ()
    finished_tick: TimeTick = TimeTick(0)
    """Transactions that ended up to this tick are in `finished`, or were forgotten."""
    producers: tuple[ProducedBatch, ...] = ()
    producers_tick: TimeTick = TimeTick(0)
    """Batches of producers up to this tick are in `producers`, or were forgotten."""
    groups: tuple[GroupSnapshot, ...] = ()
    purges: tuple[Purge, ...] = ()
    compacted: tuple[Compacted, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotChange:
    """The difference between two snapshots, as of `checkpoint`.

    `gone_…`: objects to delete: groups, purges, compactions, and what an earlier change set to
    DROPPED or FLUSHED. `finished` and `producers` are complete, or None if unchanged.
    """

    checkpoint: WalCheckpoint
    vchannels: tuple[VChannelSnapshot, ...] = ()
    segments: tuple[SegmentSnapshot, ...] = ()
    gone_vchannels: tuple[VChannelName, ...] = ()
    gone_segments: tuple[SegmentId, ...] = ()
    finished: tuple[FinishedTxn, ...] | None = None
    producers: tuple[ProducedBatch, ...] | None = None
    groups: tuple[GroupSnapshot, ...] = ()
    gone_groups: tuple[GroupKey, ...] = ()
    purges: tuple[Purge, ...] = ()
    gone_purges: tuple[str, ...] = ()
    compacted: tuple[Compacted, ...] = ()
    gone_compacted: tuple[str, ...] = ()
