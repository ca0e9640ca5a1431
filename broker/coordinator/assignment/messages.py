"""The messages of Assigner, ChannelReconciler, Balancer and Consumption.

The edge sends the requests and ChannelReported; the rest passes between actors of the coordinator.
Requests that fail raise Refused.
"""

from dataclasses import dataclass

from actors import Ref, Request
from broker.core.cluster.assignment import PChannelMeta
from broker.core.cluster.balance import BalanceRules, PlacedChannel
from broker.model.channel import Assignment, AssignmentVersion
from broker.model.ids import NodeId, PChannelName, Term

# ---- Assigner -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NextAssignment(Request[Assignment | None]):
    """The table, as soon as it is newer than `after`; None after about a second without one.

    Without `after`: at once. Ask with a deadline of at least 5 s.
    """

    after: AssignmentVersion | None = None


@dataclass(frozen=True, slots=True)
class ListPChannels(Request[tuple[PChannelMeta, ...]]):
    """Every pchannel of the cluster as the coordinator sees it, by name, served or not."""


@dataclass(frozen=True, slots=True)
class ChannelReported:
    """A client found the channel dead at this term. No answer; a stale report has no effect."""

    name: PChannelName
    term: Term


@dataclass(frozen=True, slots=True)
class NodeOpenedChannel:
    """A node serves the channel at this term."""

    node: NodeId
    name: PChannelName
    term: Term


@dataclass(frozen=True, slots=True)
class ChannelClosed:
    """A node no longer serves the channel at this term.

    `reopens`: it restarts the channel itself, so that it deserves some time.
    """

    node: NodeId
    name: PChannelName
    term: Term
    reopens: bool = True


ChannelEvent = ChannelReported | NodeOpenedChannel | ChannelClosed


@dataclass(frozen=True, slots=True)
class ReconcilerReady:
    """The reconciler of this channel has started: events about the channel go to it."""

    name: PChannelName
    reconciler: "Ref[ReconcilerMessage]"


@dataclass(frozen=True, slots=True)
class ChannelChanged:
    """The record of one channel, sent after every change."""

    meta: PChannelMeta


@dataclass(frozen=True, slots=True)
class ChooseNode(Request[NodeId | None]):
    """The node that should serve this channel; None when there is no candidate.

    NodesChanged follows when that may have changed.
    """

    name: PChannelName


@dataclass(frozen=True, slots=True)
class ExpireWatches:
    """A timer: answer None to those who have waited long enough."""


@dataclass(frozen=True, slots=True)
class LayoutMeasured:
    """The measured layout and the balance rules, for the choice of nodes from now on."""

    layout: tuple[PlacedChannel, ...]
    rules: BalanceRules


@dataclass(frozen=True, slots=True)
class MoveChannel:
    """Move the channel to this node for balance."""

    name: PChannelName
    node: NodeId


@dataclass(frozen=True, slots=True)
class RaiseStreaming(Request[int]):
    """Raise the streaming version to at least this; the resulting version.

    0 only reads it. Refused: INVALID_ARGUMENT for an unknown version, INNER for the store.
    """

    at_least: int


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """The access mode of the channels may have changed: read the streaming version."""


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """Nodes joined, left or stopped accepting channels: read LiveNodes."""


AssignerMessage = (
    NextAssignment
    | ListPChannels
    | ChannelReported
    | NodeOpenedChannel
    | ChannelClosed
    | ReconcilerReady
    | ChannelChanged
    | ChooseNode
    | ExpireWatches
    | NodesChanged
    | LayoutMeasured
    | MoveChannel
    | RaiseStreaming
)

# ---- ChannelReconciler: one per pchannel --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EnsureServed:
    """A timer: find an owner for the channel unless it is served."""


@dataclass(frozen=True, slots=True)
class Reconcile:
    """A timer: read the record, which a node may have changed."""


@dataclass(frozen=True, slots=True)
class Move:
    """Move the served channel to this node; None: to the best one."""

    node: NodeId | None = None


ReconcilerMessage = (
    ChannelReported
    | NodeOpenedChannel
    | ChannelClosed
    | NodesChanged
    | AccessChanged
    | Move
    | EnsureServed
    | Reconcile
)

# ---- Balancer -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BalancePolicy:
    """The policy in force."""

    allow_rebalance: bool
    frozen: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class UpdatePolicy(Request[BalancePolicy]):
    """Change what is given. A frozen node is emptied and gets no channels."""

    allow_rebalance: bool | None = None
    freeze: tuple[NodeId, ...] = ()
    defreeze: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True)
class Balance:
    """A timer: run a balance round."""


BalancerMessage = UpdatePolicy | NodesChanged | Balance

# ---- Consumption --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PauseConsumers(Request[None]):
    """Pause consumers that have not begun, on every node, or resume them.

    On the answer it is durable, and every reachable node has been notified. Refused(INNER) when it
    could not be recorded; then nothing has changed. Refused(UNKNOWN) when the store has not said
    whether it was recorded; if it was, nodes are notified once the store answers.
    """

    paused: bool


@dataclass(frozen=True, slots=True)
class ReadPause:
    """A timer: a write whose answer was lost may have changed the record."""


ConsumptionMessage = PauseConsumers | ReadPause
