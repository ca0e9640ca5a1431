"""What a node remembers of one pchannel over a restart, as values.

Every object carries the tick of the newest message that it knows: a replay passes it over up to
there, so it does not matter from how far back a log is read again.
"""

from dataclasses import dataclass
from enum import Enum

from broker.model.effect import SegmentLevel
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


class VChannelState(Enum):
    """Whether a vchannel's collection is still there."""

    NORMAL = "normal"
    DROPPED = "dropped"


class SegmentState(Enum):
    """Whether a segment still takes rows."""

    GROWING = "growing"
    FLUSHED = "flushed"


class TxnEnd(Enum):
    """How a transaction ended; EXPIRED stands for every end that its client did not ask for."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class WalCheckpoint:
    """Everything up to `tick` is in the snapshot, and whatever is not lies from `id` on.

    `id` is the last confirmed id of the newest message that was observed, so a replay that begins
    there also meets every transaction that was open, whole.
    """

    id: MessageId
    tick: TimeTick


@dataclass(frozen=True, slots=True)
class SchemaStart:
    """A version of a collection's schema, encoded as it was sent, and the tick it holds from."""

    version: int
    schema: bytes
    start_tick: TimeTick


@dataclass(frozen=True, slots=True)
class VChannelSnapshot:
    """A vchannel that a CreateCollection opened. `schemas`: the oldest that may matter first."""

    name: VChannelName
    collection_id: CollectionId
    state: VChannelState
    partition_ids: tuple[PartitionId, ...]
    schemas: tuple[SchemaStart, ...]
    created_tick: TimeTick
    tick: TimeTick


@dataclass(frozen=True, slots=True)
class SegmentSnapshot:
    """A segment and what it holds so far. Its id is a tick that no message has; limits of 0: none.

    `modified_tick`: its newest rows.
    """

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


@dataclass(frozen=True, slots=True)
class FinishedTxn:
    """A transaction that ended, and the answer to whoever asks again."""

    vchannel: str
    begin_id: MessageId
    bodies: int
    end: TxnEnd
    outcome: AppendedInTxn


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One pchannel as of `checkpoint`; None: none was ever made, or it cannot be read.

    Without a checkpoint whatever else is there still holds, up to its own tick.
    """

    checkpoint: WalCheckpoint | None = None
    vchannels: tuple[VChannelSnapshot, ...] = ()
    segments: tuple[SegmentSnapshot, ...] = ()
    finished: tuple[FinishedTxn, ...] = ()
    finished_tick: TimeTick = TimeTick(0)
    """Every transaction that ended up to it is among `finished`, or was forgotten."""
    producers: tuple[ProducedBatch, ...] = ()
    producers_tick: TimeTick = TimeTick(0)
    """All that producers stored up to it is among `producers`, or was forgotten."""


@dataclass(frozen=True, slots=True)
class SnapshotChange:
    """What a snapshot has that the one before it had not; all of it holds as of `checkpoint`.

    `gone_…` leave the store: an earlier change said that they are DROPPED or FLUSHED. `finished`
    and `producers` come whole, or are None when they are as they were.
    """

    checkpoint: WalCheckpoint
    vchannels: tuple[VChannelSnapshot, ...] = ()
    segments: tuple[SegmentSnapshot, ...] = ()
    gone_vchannels: tuple[VChannelName, ...] = ()
    gone_segments: tuple[SegmentId, ...] = ()
    finished: tuple[FinishedTxn, ...] | None = None
    producers: tuple[ProducedBatch, ...] | None = None
