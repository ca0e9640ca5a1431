"""What the edge, the coordinator and Membership ask of the Directory of a node."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio

from actors import Ref, Request
from broker.core.log.backlog import Backlog
from broker.model.channel import ChannelOffsets, PChannel
from broker.model.failure import Refusal
from broker.model.ids import MessageId, NodeId, PChannelName, Term, TimeTick
from broker.model.measured import RecordHead
from broker.model.position import DeliverFilter, DeliverPolicy, ReadPosition
from broker.node.appender_messages import AppenderMessage
from broker.node.scanner_messages import ScannerMessage
from broker.node.state.channel_events import ChannelEvent


class ChannelView(Protocol):
    """Read access to an open pchannel; safe for any number of callers at once."""

    def offsets(self) -> ChannelOffsets:
        """What is durable now; no I/O."""
        ...

    async def seek(self, tick: TimeTick) -> MessageId:
        """The first message id whose tick is >= `tick`, `next_id` when none. Raises Refused."""
        ...

    async def advance(self, from_id: MessageId, until_id: MessageId, bytes_max: int) -> MessageId:
        """The largest record end in (from_id, until_id] with about `bytes_max` before it.

        At least one record; `from_id` itself when nothing lies there. Raises Refused.
        """
        ...

    async def heads(self, from_id: MessageId) -> Sequence[RecordHead]:
        """Some records from the one that holds `from_id`, or the first there is, without bodies.

        Empty when there is none. Raises Refused.
        """
        ...


@dataclass(frozen=True, slots=True)
class Located:
    """An open pchannel. Give it to `intake.append`; the rest is for reading.

    `left` is set when it serves at this term no more.
    """

    channel: PChannel
    appender: Ref[AppenderMessage]
    backlog: Backlog
    view: ChannelView
    left: anyio.Event


@dataclass(frozen=True, slots=True)
class Locate(Request[Located | Refusal]):
    """The pchannel if it serves here at exactly this term; `term` None takes whatever serves.

    Refusals, in this order: INVALID_ARGUMENT (empty name, term < 1), ON_SHUTDOWN,
    CHANNEL_NOT_EXIST, UNMATCHED_CHANNEL_TERM; INVALID_ARGUMENT when `writes` and it is read-only.
    """

    name: PChannelName
    term: Term | None
    writes: bool = False


@dataclass(frozen=True, slots=True)
class ScannerOpened:
    """`cursor` is for the first Pull. When the Scanner dies, ask `FindScanner(scanner.path)`."""

    scanner: Ref[ScannerMessage]
    cursor: ReadPosition


@dataclass(frozen=True, slots=True)
class OpenScanner(Request[ScannerOpened | Refusal]):
    """Start a Scanner for one consumer, for what a `Selection` is of. Tell it CloseScanner at last.

    Refusals: those of Locate; UNRECOVERABLE when retention removed the start; INVALID_ARGUMENT when
    it lies beyond the end.
    """

    name: PChannelName
    term: Term | None
    vchannel: str
    policy: DeliverPolicy
    filters: tuple[DeliverFilter, ...] = ()
    ignores_pause: bool = False
    among: frozenset[str] | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class FindScanner(Request[Ref[ScannerMessage] | Refusal]):
    """The current incarnation of a Scanner that died (ActorDied, StaleTerm); keep your cursor.

    INNER: it is being restarted, ask again in a moment. CHANNEL_NOT_EXIST: it is gone for good (its
    channel was closed or reopened); open another one.
    """

    path: str


@dataclass(frozen=True, slots=True)
class AssignChannel(Request[Refusal | None]):
    """Open a pchannel at a term; None once it serves. Codes as in facts of the manager service."""

    channel: PChannel


@dataclass(frozen=True, slots=True)
class RemoveChannel(Request[Refusal | None]):
    """Close a pchannel; None once it is released."""

    name: PChannelName
    term: Term


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """One serving pchannel for CollectStatus and Admin.

    `mvcc_tick` is the newest tick that a stored record says is closed, `recovery_tick` how far the
    log need not be read back at a restart.
    """

    channel: PChannel
    offsets: ChannelOffsets
    mvcc_tick: TimeTick
    recovery_tick: TimeTick


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What a node serves now, sorted by name."""

    node_id: NodeId
    channels: tuple[ChannelStatus, ...]


@dataclass(frozen=True, slots=True)
class CollectStatus(Request[NodeStatus | Refusal]):
    """Every pchannel that serves now, sorted by name; ON_SHUTDOWN when the node is closing."""


@dataclass(frozen=True, slots=True)
class Describe(Request[tuple[ChannelOffsets | Refusal, ...]]):
    """What these pchannels hold, in the order asked."""

    names: tuple[PChannelName, ...]


@dataclass(frozen=True, slots=True)
class LatestMvcc(Request[TimeTick | Refusal]):
    """A tick that no durable data of the vchannel exceeds; it is closed already.

    Of a vchannel without data since its pchannel opened: the tick of the opening. Refusals: those
    of Locate, for the pchannel that the vchannel belongs to.
    """

    vchannel: str


@dataclass(frozen=True, slots=True)
class PauseConsumption(Request[None]):
    """Hold back Scanners that have not begun to read, or let all of them go on."""

    paused: bool


@dataclass(frozen=True, slots=True)
class Drain:
    """The node is about to stop: refuse everything from now on with ON_SHUTDOWN."""


@dataclass(frozen=True, slots=True)
class CloseAllChannels:
    """This node's lease is over: close every channel, whoever asked for it; none is awaited."""


DirectoryMessage = (
    Locate
    | OpenScanner
    | FindScanner
    | AssignChannel
    | RemoveChannel
    | CollectStatus
    | Describe
    | LatestMvcc
    | PauseConsumption
    | Drain
    | CloseAllChannels
    | ChannelEvent
)
