"""A pchannel with its owner, and the table of assignments."""

from dataclasses import dataclass
from enum import IntEnum

from broker.model.ids import FIRST_MESSAGE_ID, MessageId, NodeId, PChannelName, Term, TimeTick
from broker.model.snapshot import WalCheckpoint


class AccessMode(IntEnum):
    """Numbers of `milvus.proto.streaming.PChannelAccessMode`."""

    READ_WRITE = 0
    READ_ONLY = 1


class PChannelState(IntEnum):
    """Numbers of `milvus.proto.streaming.PChannelMetaState`."""

    UNKNOWN = 0
    UNINITIALIZED = 1
    ASSIGNING = 2
    ASSIGNED = 3
    UNAVAILABLE = 4


@dataclass(frozen=True, slots=True)
class PChannel:
    """One incarnation of a pchannel; `(name, term)` identifies it."""

    name: PChannelName
    term: Term
    access: AccessMode = AccessMode.READ_WRITE


@dataclass(frozen=True, slots=True)
class ChannelTicks:
    """A channel that a node serves: closed up to `mvcc_tick`, recoverable from `recovery_tick`."""

    channel: PChannel
    mvcc_tick: TimeTick
    recovery_tick: TimeTick


@dataclass(frozen=True, slots=True)
class NodeAssignment:
    """One live node and the pchannels that it serves, which may be none."""

    node_id: NodeId
    address: str
    channels: tuple[PChannel, ...]


@dataclass(frozen=True, slots=True, order=True)
class AssignmentVersion:
    """Compared by coordinator incarnation first, then by change count."""

    incarnation: int
    change: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """The whole table; a newer version replaces an older one completely.

    `streaming_version` 0: streaming was never enabled, and channels are served read-only.
    """

    version: AssignmentVersion
    nodes: tuple[NodeAssignment, ...]
    control_host: PChannelName
    streaming_version: int


@dataclass(frozen=True, slots=True)
class SegmentCounts:
    """Growing segments of a pchannel with their bytes, and sealed ones that wait for a Flush."""

    growing: int = 0
    growing_bytes: int = 0
    sealed: int = 0


@dataclass(frozen=True, slots=True)
class ChannelOffsets:
    """What a pchannel holds now: ids in [first_id, next_id), closed up to `closed_tick`.

    `last_confirmed_id` is that of the newest message: a reader that starts there sees every later
    transaction whole. `open_txns`: neither committed nor rolled back. `prepared_txns`: those of
    them that wait for the coordinator's decision. `checkpoint`: where a restart would start to
    replay; None: at the beginning. `observed_tick`: the owner has processed every record up to it.
    `removed_tick`: that of the newest record that retention has removed; 0 if it removed none.
    `purged_tick`: the newest message that was purged of the vchannel that was asked for, or given
    back after its drop, has this tick or a smaller one; 0: none was.
    """

    name: PChannelName
    term: Term
    first_id: MessageId
    next_id: MessageId
    closed_tick: TimeTick
    size_bytes: int
    last_confirmed_id: MessageId = FIRST_MESSAGE_ID
    open_txns: int = 0
    open_txn_bytes: int = 0
    checkpoint: WalCheckpoint | None = None
    segments: SegmentCounts = SegmentCounts()
    observed_tick: TimeTick = TimeTick(0)
    prepared_txns: int = 0
    removed_tick: TimeTick = TimeTick(0)
    purged_tick: TimeTick = TimeTick(0)
