"""Publishes the assignment table that every client follows, and chooses nodes for channels.

It never calls a node: each row is kept by a ChannelReconciler.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from actors import Actor, ActorError, Context, Envelope, Ref
from broker.coordinator.assignment.founding import found_cluster, next_incarnation
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import (
    AccessChanged,
    AssignerMessage,
    ChannelChanged,
    ChannelClosed,
    ChannelEvent,
    ChannelReported,
    ChooseNode,
    ExpireWatches,
    LayoutMeasured,
    ListPChannels,
    Move,
    MoveChannel,
    NextAssignment,
    NodeOpenedChannel,
    NodesChanged,
    RaiseStreaming,
    ReconcilerMessage,
    ReconcilerReady,
)
from broker.coordinator.assignment.streaming_version import (
    raise_streaming_version,
    streaming_version,
)
from broker.coordinator.records import PCHANNEL_PREFIX, decode_pchannel
from broker.core.cluster.assignment import NodeAddress, PChannelMeta, tabulate
from broker.core.cluster.balance import BalanceRules, PlacedChannel, best_node
from broker.core.cluster.node_leases import StartupGrace, must_wait_for_nodes
from broker.model.channel import Assignment, AssignmentVersion, PChannelState
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId, PChannelName
from broker.ports.meta import MetaError, MetaStore
from broker.ports.meta_writes import all_entries

WATCH_S = 1.0
"""After this a NextAssignment is answered None, so that the edge can check its client."""

NO_GRACE = StartupGrace()
WATCH_CHECK_S = 0.2
ROUNDING_S = 0.01
"""Added to a timer, so that rounding does not make it fire early."""
WATCHES_MAX = 4096
"""One for each client stream; more are refused, not queued."""


ToReconciler = ChannelEvent | NodesChanged | AccessChanged | Move


@dataclass(frozen=True, slots=True)
class AssignmentWatch:
    """A request for a table newer than the current one."""

    envelope: Envelope[AssignerMessage]
    until_s: float


class Assigner(Actor[AssignerMessage]):
    """The assignment table, versioned by coordinator incarnation and change.

    Only channels that a reconciler has confirmed are listed, so after a restart the table fills up
    again under a larger incarnation. All changes in one batch of messages make one new version.
    """

    def __init__(
        self,
        store: MetaStore,
        nodes: LiveNodes,
        pchannels: Sequence[PChannelName],
        startup_grace: StartupGrace = NO_GRACE,
    ) -> None:
        self._store = store
        self._nodes = nodes
        self._pchannels = tuple(pchannels)
        self._startup_grace = startup_grace
        self._nodes_complete = False
        self._first_node_s: float | None = None
        self._table = {name: PChannelMeta(name) for name in pchannels}
        self._loads: dict[PChannelName, PlacedChannel] = {}
        self._rules = BalanceRules()
        self._intended_nodes: dict[PChannelName, NodeId] = {}
        self._reconcilers: dict[PChannelName, Ref[ReconcilerMessage]] = {}
        self._watches: deque[AssignmentWatch] = deque()

    async def started(self, context: Context[AssignerMessage]) -> None:
        self._context = context
        self._balancer_path = f"{context.path.rpartition('/')[0]}/balancer"
        self._started_s = context.clock.monotonic_s()
        cluster = await found_cluster(self._store, self._pchannels)
        self._control_host = cluster.control_host
        # The owners of before: a start waits for them, so that the first node does not get all.
        async for key, entry in all_entries(self._store, PCHANNEL_PREFIX):
            self._note_node(decode_pchannel(key, entry.value))
        self._streaming = await streaming_version(self._store)
        self._version = AssignmentVersion(await next_incarnation(self._store), 1)
        self._published = self._assignment()
        context.on_beat(WATCH_CHECK_S, ExpireWatches())

    async def receive(self, batch: Sequence[Envelope[AssignerMessage]]) -> None:
        """Apply changes first: one version must never stand for two tables."""
        for envelope in batch:
            if isinstance(envelope.message, ChannelChanged):
                self._change(envelope.message.meta)
            elif isinstance(envelope.message, RaiseStreaming):
                await self._raise_streaming(envelope.message.at_least, envelope)
        if self._assignment() != self._published:
            self._version = AssignmentVersion(self._version.incarnation, self._version.change + 1)
            self._published = self._assignment()
            self._answer_watches()
        for envelope in batch:
            self._handle(envelope)

    def statistics(self) -> Mapping[str, int | float | str]:
        return {
            "version": f"{self._version.incarnation}.{self._version.change}",
            "channels_assigned": sum([len(node.channels) for node in self._published.nodes]),
            "streaming_version": self._streaming,
            "change": self._version.change,
            "vchannels": sum(each.vchannels for each in self._loads.values()),
            "watches": len(self._watches),
        }

    def _handle(self, envelope: Envelope[AssignerMessage]) -> None:
        match envelope.message:
            case NextAssignment(after):
                self._watch(envelope, after)
            case ListPChannels():
                envelope.reply(tuple(self._table[name] for name in sorted(self._table)))
            case ChannelReported() | NodeOpenedChannel() | ChannelClosed() as event:
                self._forward(event.name, event)
            case NodesChanged() | MoveChannel() | LayoutMeasured() as change:
                self._handle_change(change)
            case ReconcilerReady(name, reconciler):
                self._reconcilers[name] = reconciler
            case ChannelChanged() | RaiseStreaming():
                pass  # done before everything else
            case ChooseNode(name):
                self._choose(name, envelope)
            case ExpireWatches():
                self._expire_watches()
            case message:
                assert_never(message)

    def _handle_change(self, change: NodesChanged | MoveChannel | LayoutMeasured) -> None:
        """Events about several channels, and decisions of the balancer."""
        match change:
            case NodesChanged() as news:
                for name in self._table:
                    self._forward(name, news)
                self._tell_balancer(news)
            case MoveChannel(name, node):
                self._intended_nodes[name] = node
                self._forward(name, Move(node))
            case LayoutMeasured(layout, rules):
                self._loads = {it.name: it for it in layout}
                self._rules = rules
            case _:
                assert_never(change)

    def _change(self, meta: PChannelMeta) -> None:
        self._table[meta.name] = meta
        self._note_node(meta)
        if meta.state is PChannelState.ASSIGNED and not self._nodes_complete:
            # A node serves already: the cluster runs, and only its coordinator restarted.
            self._nodes_complete = True
            self._context.self.tell(NodesChanged())

    async def _raise_streaming(self, wanted: int, envelope: Envelope[AssignerMessage]) -> None:
        """Store the version first; then have channels whose access changes assigned anew."""
        try:
            version = await raise_streaming_version(self._store, wanted)
        except Refused as error:
            envelope.fail(error)
        except MetaError as error:
            envelope.fail(Refused(StreamingCode.INNER, str(error)))
        else:
            if version != self._streaming:
                self._streaming = version
                for name in self._table:
                    self._forward(name, AccessChanged())
            envelope.reply(version)

    def _note_node(self, meta: PChannelMeta) -> None:
        if meta.node is not None:
            self._intended_nodes[meta.name] = meta.node

    def _watch(self, envelope: Envelope[AssignerMessage], after: AssignmentVersion | None) -> None:
        if after is None or after < self._version:
            envelope.reply(self._assignment())
        elif len(self._watches) < WATCHES_MAX:
            until_s = self._context.clock.monotonic_s() + WATCH_S
            self._watches.append(AssignmentWatch(envelope, until_s))
        else:
            cause = f"{WATCHES_MAX} clients follow the assignment table already; try again later"
            envelope.fail(Refused(StreamingCode.INNER, cause))

    def _answer_watches(self) -> None:
        """Every watch waits for a version above an older one, so all are answered."""
        assignment = self._assignment()
        while self._watches:
            self._watches.popleft().envelope.reply(assignment)

    def _expire_watches(self) -> None:
        now_s = self._context.clock.monotonic_s()
        # All wait equally long, so the first one expires first.
        while self._watches and self._watches[0].until_s <= now_s:
            self._watches.popleft().envelope.reply(None)

    def _tell_balancer(self, news: NodesChanged) -> None:
        try:
            self._context.tree.find(self._balancer_path).tell(news)
        except ActorError:
            pass  # after its restart it looks at all nodes anyway

    def _forward(self, name: PChannelName, event: ToReconciler) -> None:
        """Send to the channel's reconciler; one that is restarting reads its record anyway."""
        reconciler = self._reconcilers.get(name)
        if reconciler is None:
            return
        try:
            reconciler.tell(event)
        except ActorError:
            pass

    def _choose(self, name: PChannelName, envelope: Envelope[AssignerMessage]) -> None:
        """The node with the lowest cost, counting channels chosen but not served yet."""
        chosen = None
        if not self._must_wait_for_nodes():
            chosen = best_node(name, self._layout(), self._nodes.reachable(), self._rules)
        if chosen is not None:
            # Counts at once: channels lost together must not all go to the same emptiest node.
            self._intended_nodes[name] = chosen
        envelope.reply(chosen)

    def _layout(self) -> list[PlacedChannel]:
        """The current or intended node of each channel, with its load at the last measurement."""
        return [
            replace(self._loads.get(name, PlacedChannel(name, home)), node=home)
            for name, home in self._intended_nodes.items()
        ]

    def _must_wait_for_nodes(self) -> bool:
        if self._nodes_complete:
            return False
        here, owned = self._nodes.accepting(), frozenset(self._intended_nodes.values())
        now_s = self._context.clock.monotonic_s()
        if not here:
            self._first_node_s = None  # all have left again: the grace starts with the next one
        elif self._first_node_s is None:
            self._first_node_s = now_s
            expected_left_s = self._startup_grace.expected_s - (now_s - self._started_s)
            wait_s = (
                expected_left_s if self._startup_grace.expected else self._startup_grace.grace_s
            )
            # Reconcilers that got no node ask again when they hear of a change: the end of the
            # wait is one.
            self._context.after(max(0.0, wait_s) + ROUNDING_S, NodesChanged())
        since_s = 0.0 if self._first_node_s is None else now_s - self._first_node_s
        waiting = must_wait_for_nodes(
            self._startup_grace, here, owned, now_s - self._started_s, since_s
        )
        self._nodes_complete = not waiting  # for good: nodes that leave later are not waited for
        return waiting

    def _assignment(self) -> Assignment:
        live = [NodeAddress(node.node_id, node.address) for node in self._nodes.all()]
        metas = self._table.values()
        return tabulate(self._version, live, metas, self._control_host, self._streaming)
