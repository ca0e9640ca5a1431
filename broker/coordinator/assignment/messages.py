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
    """The table, as soon as it is newer than `after`; None when it is not after about a second.

    Without `after`: at once. Ask with a deadline of at least 5 s.
    """

    after: AssignmentVersion | None = None


@dataclass(frozen=True, slots=True)
class ListPChannels(Request[tuple[PChannelMeta, ...]]):
    """Every pchannel of the cluster as the coordinator sees it, by name, served or not."""


@dataclass(frozen=True, slots=True)
class ChannelReported:
    """A client found the channel dead at this term; told, never asked. Stale reports do nothing."""

    name: PChannelName
    term: Term


@dataclass(frozen=True, slots=True)
class NodeOpenedChannel:
    """A node says that it serves the channel at this term."""

    node: NodeId
    name: PChannelName
    term: Term


@dataclass(frozen=True, slots=True)
class ChannelClosed:
    """A node says that it no longer serves the channel at this term."""

    node: NodeId
    name: PChannelName
    term: Term


ChannelEvent = ChannelReported | NodeOpenedChannel | ChannelClosed


@dataclass(frozen=True, slots=True)
class ReconcilerReady:
    """The actor that keeps this channel is up; events about the channel go to it."""

    name: PChannelName
    reconciler: "Ref[ReconcilerMessage]"


@dataclass(frozen=True, slots=True)
class ChannelChanged:
    """The record of one channel, whenever it changed."""

    meta: PChannelMeta


@dataclass(frozen=True, slots=True)
class ChooseNode(Request[NodeId | None]):
    """The node that should serve this channel; None when none is there to choose.

    NodesChanged will say when that may have changed.
    """

    name: PChannelName


@dataclass(frozen=True, slots=True)
class ExpireWatches:
    """A timer: those who asked for a newer table long ago get None."""


@dataclass(frozen=True, slots=True)
class LayoutMeasured:
    """What each served channel carries, and what counts: for the choice of nodes from now on."""

    layout: tuple[PlacedChannel, ...]
    rules: BalanceRules


@dataclass(frozen=True, slots=True)
class MoveChannel:
    """Give the channel to this node, for balance."""

    name: PChannelName
    node: NodeId


@dataclass(frozen=True, slots=True)
class RaiseStreaming(Request[int]):
    """Have the streaming version be this at least; the one that holds from now on.

    0 only asks. Raises Refused: INVALID_ARGUMENT for one that is not known, INNER for the store.
    """

    at_least: int


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """What the channels are to be served for has changed: look at the streaming version."""


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """Nodes came, left, or take no more channels: look at LiveNodes."""


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
    """A timer: bring the channel to a node, unless it is served."""


@dataclass(frozen=True, slots=True)
class Reconcile:
    """A timer: look whether the record has changed behind our back."""


@dataclass(frozen=True, slots=True)
class Move:
    """Give the channel, which is served, to another node; None: whichever is best."""

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
    """What holds now."""

    allow_rebalance: bool
    frozen: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class UpdatePolicy(Request[BalancePolicy]):
    """Change the policy, where something is given. Frozen nodes keep nothing and get nothing."""

    allow_rebalance: bool | None = None
    freeze: tuple[NodeId, ...] = ()
    defreeze: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True)
class Balance:
    """A timer: look over the layout."""


BalancerMessage = UpdatePolicy | NodesChanged | Balance

# ---- Consumption --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PauseConsumers(Request[None]):
    """Hold back consumers that have not begun, on every node, or let all go on.

    Durable when it is answered, and the nodes that could be reached have heard of it. Raises
    Refused(INNER) when it could not be recorded; then nothing has changed.
    """

    paused: bool


ConsumptionMessage = PauseConsumers
