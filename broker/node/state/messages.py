"""Everything the actors of a node can be told or asked.

It owns the vocabulary and nothing else. Requests are imperative, events are past.
Next: broker/node/append/intake.py
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio

from actors import Ref, Request, Terminated
from broker.core.log.backlog import Backlog
from broker.core.log.delivery import Item
from broker.model.batch import Durability
from broker.model.channel import ChannelOffsets, PChannel
from broker.model.failure import Refusal
from broker.model.ids import MessageId, NodeId, PChannelName, Term, TimeTick
from broker.model.measured import RecordHead
from broker.model.message import Appended, ClosedTick, NewMessage
from broker.model.position import DeliverFilter, DeliverPolicy, ReadPosition
from broker.node.state.shard_state import SealOverdue, SealSegments
from broker.node.state.txn_messages import AboutTxns

AppendOutcome = Appended | Refusal

# ---- Appender: one per pchannel --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendBatch(Request[tuple[AppendOutcome, ...]]):
    """Append these, which take `ticks` ticks; answered with an outcome for each, in their order.

    The answer waits for no more than `durability`; all of them are stored and synced in any case.
    Go through `intake.append`, which bounds the messages, counts `size_bytes` into the Backlog and
    turns actor errors into refusals. The Appender counts them out when it answers.
    """

    messages: tuple[NewMessage, ...]
    size_bytes: int
    ticks: int
    durability: Durability = Durability.FSYNC


@dataclass(frozen=True, slots=True)
class CloseTick(Request[TimeTick | Refusal]):
    """Close a tick now. Answered with the newest one; a refusal when it writes no more."""


@dataclass(frozen=True, slots=True)
class ProbeStorage:
    """A timer of an Appender whose storage refused: see whether it would take a write again."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """A timer: drop what retention lets go."""


AppenderMessage = (
    AppendBatch | CloseTick | ProbeStorage | Truncate | AboutTxns | SealOverdue | SealSegments
)

# ---- TimeTick: one per pchannel --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beat:
    """A timer: the tick interval has passed."""


TimeTickMessage = Beat

# ---- Recovery: one per pchannel --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FollowLog:
    """A timer: see what the log has got since the last time."""


@dataclass(frozen=True, slots=True)
class SaveAgain:
    """A timer: the store refused the snapshot a moment ago; try the same one again."""


RecoveryMessage = FollowLog | SaveAgain

# ---- Scanner: one per consumer ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one Pull gives.

    `items`: messages in tick order, and persisted ticks among them, each exactly once.
    `tick`: an announced (not persisted) tick after all of them, or None. Both may be empty.
    `cursor`: what to pull next.
    """

    items: tuple[Item, ...]
    tick: ClosedTick | None
    cursor: ReadPosition


@dataclass(frozen=True, slots=True)
class Pull(Request[Delivery | Refusal]):
    """Give up to about `bytes_max` bytes of message bodies from `cursor` on (one message at least).

    Answered when there is something, else with an announced tick, else empty after about a second:
    ask with a deadline of at least 5 s. The next Pull carries the cursor of the answer; a Scanner
    remembers no position, so an unanswered Pull is simply asked again. One Pull at a time.
    """

    cursor: ReadPosition
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Something new may be readable: the tail grew, or a tick was closed."""


@dataclass(frozen=True, slots=True)
class IdleTimeout:
    """A timer: leave when nobody has pulled for long."""


@dataclass(frozen=True, slots=True)
class CloseScanner:
    """The consumer is gone."""


ScannerMessage = Pull | Wake | IdleTimeout | CloseScanner

# ---- Directory: one per node -----------------------------------------------------------------


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
class ChannelOpened:
    """An Appender holds its log at this term and serves; it can be found in `OpenChannels`."""

    channel: PChannel


@dataclass(frozen=True, slots=True)
class ChannelFailed:
    """A pchannel could not be opened at this term, or lost it.

    `final`: nobody may try again here. Otherwise its supervisor goes on at later terms.
    """

    name: PChannelName
    term: Term
    refusal: Refusal
    final: bool


@dataclass(frozen=True, slots=True)
class ChannelReleased:
    """Nothing of the pchannel, up to this term, runs or is open here any more."""

    name: PChannelName
    term: Term


@dataclass(frozen=True, slots=True)
class KeeperCameBack:
    """The Keeper of a pchannel was restarted, at this actor term: what it was told last is lost."""

    name: PChannelName
    actor_term: int


@dataclass(frozen=True, slots=True)
class LookForPlace:
    """See that the pchannel has a place on this node, if it should be open here."""

    name: PChannelName


@dataclass(frozen=True, slots=True)
class GiveUpChannels:
    """This node's lease is over: close every channel, whoever asked for it; none is awaited."""


ChannelEvent = ChannelOpened | ChannelFailed | ChannelReleased | KeeperCameBack

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
    | GiveUpChannels
    | LookForPlace
    | ChannelEvent
    | Terminated
)
