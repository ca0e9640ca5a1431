"""What the edge, the coordinator and Membership ask of the Directory of a node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from actors import Ref, Request
from broker.core.log.backlog import Backlog
from broker.core.pressure.storage_use import StorageBook
from broker.model.channel import ChannelOffsets, PChannel
from broker.model.failure import Refusal
from broker.model.ids import MessageId, NodeId, PChannelName, Term, TimeTick, TxnId
from broker.model.measured import RecordHead
from broker.model.message import NewMessage
from broker.model.position import DeliverFilter, DeliverPolicy, ReadPosition
from broker.node.appender_messages import AppenderMessage
from broker.node.scanner_messages import ScannerMessage
from broker.node.state.channel_events import ChannelEvent
from broker.node.state.channel_groups import ChannelGroups
from broker.node.state.oracle_view import OracleView
from broker.node.state.pressure import NodePressure


class ChannelView(Protocol):
    """Read access to an open pchannel; safe for any number of callers at once."""

    def offsets(self) -> ChannelOffsets:
        """What is durable now; no I/O."""
        ...

    async def seek(self, tick: TimeTick) -> MessageId:
        """The first message id with a tick >= `tick`, else `next_id`. Raises Refused."""
        ...

    async def advance(self, from_id: MessageId, until_id: MessageId, bytes_max: int) -> MessageId:
        """The largest record end in (from_id, until_id] within about `bytes_max` bytes.

        At least one record is passed; `from_id` when there is none. Raises Refused.
        """
        ...

    def purged(self) -> Mapping[str, TimeTick]:
        """Up to which tick messages of some vchannels are purged; no I/O."""
        ...

    def has_collection(self, vchannel: str) -> bool:
        """Whether a message of the log created a collection on the vchannel; it may be dropped."""
        ...

    def has_living_collection(self, vchannel: str) -> bool:
        """Whether that collection was not dropped since."""
        ...

    def has_open_txn(self, txn: TxnId) -> bool:
        """Whether the transaction is open here; no I/O."""
        ...

    def superseded_by(self, begin: NewMessage) -> int:
        """How many transactions in flight this begin ends, as attempts at the same; no I/O."""
        ...

    async def has_vchannel(self, vchannel: str) -> bool:
        """Whether a message of the log has named the vchannel. May read the whole log, once.

        A cancelled call is continued by the next one. True when that cannot be told any more.
        """
        ...

    async def heads(self, from_id: MessageId) -> Sequence[RecordHead]:
        """Some records without their bodies, from the one that holds `from_id` or the oldest.

        Empty at the end. Raises Refused.
        """
        ...


@dataclass(frozen=True, slots=True)
class Located:
    """An open pchannel, for `intake.append` and for reading.

    `closed` is set when the pchannel stops serving at this term.
    """

    channel: PChannel
    appender: Ref[AppenderMessage]
    backlog: Backlog
    view: ChannelView
    closed: anyio.Event
    oracle: OracleView
    groups: ChannelGroups
    pressure: NodePressure = field(default_factory=NodePressure)
    storage: StorageBook = field(default_factory=StorageBook)


@dataclass(frozen=True, slots=True)
class Locate(Request[Located | Refusal]):
    """The pchannel if it serves here at exactly this term; `term` None accepts any term.

    Refusals, in this order: INVALID_ARGUMENT (empty name, term < 1), ON_SHUTDOWN,
    CHANNEL_NOT_EXIST, UNMATCHED_CHANNEL_TERM; INVALID_ARGUMENT for `writes` on a read-only one.
    """

    name: PChannelName
    term: Term | None
    writes: bool = False


@dataclass(frozen=True, slots=True)
class ScannerOpened:
    """`cursor`: for the first Pull. When the Scanner dies, ask `FindScanner(scanner.path)`."""

    scanner: Ref[ScannerMessage]
    cursor: ReadPosition


@dataclass(frozen=True, slots=True)
class OpenScanner(Request[ScannerOpened | Refusal]):
    """Start a Scanner for one consumer; the fields make its `Selection`. Send CloseScanner at last.

    Refusals: those of Locate; UNRECOVERABLE when retention removed the start; INVALID_ARGUMENT when
    the start lies beyond the end.
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
    """The current incarnation of a Scanner that died (ActorDied, StaleTerm); the cursor is valid.

    INNER: it is restarting, retry soon. CHANNEL_NOT_EXIST: its channel was closed or reopened; open
    another Scanner.
    """

    path: str


@dataclass(frozen=True, slots=True)
class AssignChannel(Request[Refusal | None]):
    """Open a pchannel at a term; None once it serves.

    Refusals: IGNORED_OPERATION when the term is not later than the newest request,
    UNMATCHED_CHANNEL_TERM when a later one overtook it, INVALID_ARGUMENT for a bad name or term,
    RESOURCE_ACQUIRED with too many pchannels, ON_SHUTDOWN, or the reason why opening failed.
    """

    channel: PChannel


@dataclass(frozen=True, slots=True)
class RemoveChannel(Request[Refusal | None]):
    """Close a pchannel; None once nothing of it is open here."""

    name: PChannelName
    term: Term


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """A pchannel that serves now.

    `mvcc_tick`: the newest tick that a stored record closes. `recovery_tick`: a restart need not
    replay the log up to it.
    """

    channel: PChannel
    offsets: ChannelOffsets
    mvcc_tick: TimeTick
    recovery_tick: TimeTick


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The pchannels that a node serves, sorted by name."""

    node_id: NodeId
    channels: tuple[ChannelStatus, ...]


@dataclass(frozen=True, slots=True)
class CollectStatus(Request[NodeStatus | Refusal]):
    """Every pchannel that serves; ON_SHUTDOWN when the node is closing."""


@dataclass(frozen=True, slots=True)
class Describe(Request[tuple[ChannelOffsets | Refusal, ...]]):
    """Ids, ticks and sizes of pchannels, in the order of `names`; a vchannel: of its pchannel."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShowClosedTicks(Request[Mapping[PChannelName, TimeTick]]):
    """The closed ticks of those of `names` that serve here."""

    names: tuple[PChannelName, ...]


@dataclass(frozen=True, slots=True)
class LatestMvcc(Request[TimeTick | Refusal]):
    """A closed tick that no durable data of the vchannel exceeds.

    For a vchannel without data since its pchannel opened: the tick of the opening. Refusals: those
    of Locate for the pchannel of the vchannel.
    """

    vchannel: str


@dataclass(frozen=True, slots=True)
class PauseConsumption(Request[None]):
    """Hold back Scanners that have not started to read, or resume them."""

    paused: bool


@dataclass(frozen=True, slots=True)
class Drain:
    """The node is about to stop: refuse all requests from now on with ON_SHUTDOWN."""


@dataclass(frozen=True, slots=True)
class CloseAllChannels:
    """This node's lease is over: close every pchannel, without waiting for any."""


DirectoryMessage = (
    Locate
    | OpenScanner
    | FindScanner
    | AssignChannel
    | RemoveChannel
    | CollectStatus
    | Describe
    | ShowClosedTicks
    | LatestMvcc
    | PauseConsumption
    | Drain
    | CloseAllChannels
    | ChannelEvent
)
