"""Keeps one pchannel served by a node: the actor behind one row of the assignment table.

The transitions are rules of `broker/core/cluster/assignment.py`; each one is durable before it is
acted on. The assigner, which sees all rows, chooses the node.

Why an earlier owner with a session is waited for: the log fences its writes, but the ticks that it
announces as closed are not written anywhere. One without a session gets no new ticks to announce.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, assert_never

import structlog

from actors import Actor, ActorError, Backoff, Context, Envelope, Ref, Timer
from actors.clock import deadline
from broker.coordinator.assignment.channel_records import ChannelRecords, RecordedChannel
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import (
    AccessChanged,
    AssignerMessage,
    ChannelChanged,
    ChannelClosed,
    ChannelReported,
    ChooseNode,
    EnsureServed,
    Move,
    NodeOpenedChannel,
    NodesChanged,
    Reconcile,
    ReconcilerMessage,
    ReconcilerReady,
)
from broker.coordinator.assignment.reconciler_timing import ReconcilerTiming
from broker.coordinator.assignment.streaming_version import streaming_version
from broker.coordinator.retries import Retries
from broker.core.cluster.assignment import PChannelMeta, access_at, assign, lost, served
from broker.model.channel import AccessMode, PChannel, PChannelState
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId, PChannelName, Term
from broker.ports.meta import Conflict, MetaError, MetaStore
from broker.ports.nodes import NodeControl

WARN_AFTER = 4
"""The first failure happens at every healthy start: the node comes up after its coordinator."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


class ChannelReconciler(Actor[ReconcilerMessage]):
    """Keeps one pchannel assigned, and assigns it again whenever it is lost."""

    def __init__(
        self,
        name: PChannelName,
        store: MetaStore,
        nodes: LiveNodes,
        assigner_path: str,
        timing: ReconcilerTiming,
    ) -> None:
        self._name = name
        self._store = store
        self._records = ChannelRecords(store)
        self._nodes = nodes
        self._assigner_path = assigner_path
        self._timing = timing
        backoff = Backoff(timing.retry_first_s, timing.retry_max_s)
        self._retries = Retries(backoff, "not served yet", warn_after=WARN_AFTER, channel=name)
        self._confirmed: Term | None = None
        self._confirmed_node: NodeControl | None = None
        self._published: PChannelMeta | None = None
        self._planned: Timer | None = None
        self._move_planned = False
        self._owner_gone_s: float | None = None
        self._reopening: tuple[NodeControl, float] | None = None
        """The node that restarts the channel, and until when it has time for that."""
        self._writable = False

    async def started(self, context: Context[ReconcilerMessage]) -> None:
        self._context = context
        self._assigner: Ref[AssignerMessage] = context.tree.find(self._assigner_path)
        self._assigner.tell(ReconcilerReady(self._name, context.self))
        # Events about the channel may be lost, and a node writes the record itself: look regularly.
        context.every(self._timing.reconcile_s, Reconcile())
        self._plan(0.0)

    async def receive(self, batch: Sequence[Envelope[ReconcilerMessage]]) -> None:
        for envelope in batch:
            try:
                await self._handle(envelope.message)
            except Conflict:
                await self._record_taken()
            except (Refused, MetaError, ActorError) as error:
                self._failed(error)

    def statistics(self) -> Mapping[str, int | float | str]:
        known = self._published
        return {
            "channel_term": known.term if known else 0,
            "channel_state": known.state.name if known else "UNKNOWN",
            "failures": self._retries.failures,
            **({"error": self._retries.error} if self._retries.failures else {}),
        }

    async def _handle(self, message: ReconcilerMessage) -> None:
        match message:
            case EnsureServed():
                self._planned = None
                await self._ensure_served()
            case Reconcile():
                self._publish_confirmed(await self._records.read(self._name))
                self._follow_up(0.0)
                await self._update_access()
            case AccessChanged():
                await self._update_access()
            case NodeOpenedChannel(node, _, term):
                await self._opened(node, term)
            case ChannelClosed(node, _, term, reopens):
                await self._closed(node, term, reopens=reopens)
            case ChannelReported(_, term):
                await self._reported(term)
            case NodesChanged():
                self._check_owner()
            case Move(node):
                self._move_planned = False
                await self._move(node)
            case _:
                assert_never(message)

    def _check_owner(self) -> None:
        """Act at once when the owner is gone or stopping."""
        known = self._published
        if known is None or not self._is_served(known):
            if self._is_reopening():
                return
            if known is not None and self._nodes.find(known.node) is not self._confirmed_node:
                # Published before it is recorded, so that clients stop calling that node now.
                self._publish(lost(known, known.term))
            # Other nodes, another chance: do not wait out the pause of earlier failures.
            self._retries.succeeded()
            self._plan_anew(0.0)
        elif known.node not in self._nodes.accepting() and self._nodes.accepting():
            self._context.self.tell(Move())

    async def _move(self, node: NodeId | None) -> None:
        """Move a served channel; one that is not served is repaired first."""
        before = await self._records.read(self._name)
        if not self._is_served(before.meta):
            return
        # Move() was sent when its node stopped accepting channels; it may accept them again by now.
        well_off = node is None and before.meta.node in self._nodes.accepting()
        if not well_off and before.meta.node != node:
            await self._assign(before, node, balanced=node is not None)

    async def _update_access(self) -> None:
        """Assign the channel to its owner anew when its access mode has changed."""
        before = await self._records.read(self._name)
        access = await self._access()
        if self._is_served(before.meta) and before.meta.access is not access:
            await self._assign(before, before.meta.node)

    async def _access(self) -> AccessMode:
        """The access mode of the channel; once read-write, always."""
        if not self._writable:
            version = await streaming_version(self._store)
            self._writable = access_at(version) is AccessMode.READ_WRITE
        return AccessMode.READ_WRITE if self._writable else AccessMode.READ_ONLY

    async def _ensure_served(self) -> None:
        """One attempt to have the channel served; a failure is raised and retried later."""
        before = await self._records.read(self._name)
        if self._is_served(before.meta):
            self._publish_confirmed(before)
            self._retries.succeeded()  # what failed was to move it
        # After a restart of the coordinator the owner serves as before: confirm it at its term
        # instead of interrupting it with a new one.
        elif (held_by := await self._holder(before.meta)) is not None:
            await self._opened(held_by, before.meta.term)
            await self._update_access()
        elif (left_s := self._grace_left_s(before.meta)) > 0.0:
            self._plan(max(left_s, self._timing.retry_first_s))
        else:
            await self._assign(before)

    def _grace_left_s(self, meta: PChannelMeta) -> float:
        """How long an owner that vanished may still come back."""
        if meta.node is None or self._nodes.find(meta.node) is not None:
            self._owner_gone_s = None
            return 0.0
        now_s = self._context.clock.monotonic_s()
        self._owner_gone_s = now_s if self._owner_gone_s is None else self._owner_gone_s
        return self._owner_gone_s + self._timing.node_lost_grace_s - now_s

    async def _assign(
        self, before: RecordedChannel, chosen: NodeId | None = None, *, balanced: bool = False
    ) -> None:
        """Assign at the next term: record it, close earlier owners, then open the new one."""
        if chosen is None:
            choose = ChooseNode(self._name)
            chosen = await self._assigner.ask(choose, deadline_s=self._timing.ask_deadline_s)
        if chosen is None:
            self._plan(self._timing.reconcile_s)  # NodesChanged comes earlier when a node joins
            return
        log.debug("node chosen", node=chosen)
        node = self._nodes.find(chosen)
        access = await self._access()
        there = (before.meta.node, before.meta.access) == (chosen, access)
        if node is None or (self._is_served(before.meta) and there):
            raise Refused(StreamingCode.INNER, f"node {chosen} cannot be given {self._name} now")
        doubtful = self._retries.failures or not self._nodes.is_confirmed(chosen)
        if doubtful or balanced:
            # First: a term given to a dead node costs a fence and a record, and who serves it now.
            await self._within(self._timing.ask_deadline_s, node.status)
        # As lost: `assign` would keep the term where the record says that this node serves.
        meta = assign(lost(before.meta, before.meta.term), chosen, access)
        if balanced:
            meta = replace(meta, moved_ms=self._context.clock.wall_ms())
        # Before any call: from here on a restarted coordinator knows that this node may own it.
        recorded = await self._records.save(before, meta)
        self._publish_confirmed(recorded)
        # Before the new owner opens: two owners could announce contradicting closed ticks.
        for owner in meta.histories:
            await self._remove(owner.node, Term(meta.term - 1))
        log.debug("owner recorded", node=chosen)
        channel = PChannel(meta.name, meta.term, meta.access)
        await self._within(self._timing.assign_deadline_s, lambda: node.assign(channel))
        log.debug("node has opened it", node=chosen)
        await self._opened(chosen, meta.term, recorded)

    async def _opened(
        self, node: NodeId, term: Term, before: RecordedChannel | None = None
    ) -> None:
        """The node serves this term; ignored unless it is the recorded owner and term."""
        now_ms = self._context.clock.wall_ms()
        recorded = await self._records.change(
            self._name, lambda meta: served(meta, node, term, now_ms), before
        )
        meta = recorded.meta
        if (meta.state, meta.node, meta.term) == (PChannelState.ASSIGNED, node, term):
            self._confirmed, self._confirmed_node = term, self._nodes.find(node)
            self._retries.succeeded()
            log.debug("owner confirmed", node=node)
        self._publish_confirmed(recorded)
        self._follow_up(self._timing.reopen_grace_s)

    async def _closed(self, node: NodeId, term: Term, *, reopens: bool) -> None:
        """The node stopped serving; ignored for an earlier owner or term."""
        self._unconfirm(term)
        after = await self._records.change(
            self._name, lambda meta: lost(meta, term) if meta.node == node else meta
        )
        self._publish_confirmed(after)
        if (after.meta.node, after.meta.term) != (node, term):
            self._follow_up(self._timing.reopen_grace_s)
        elif reopens:
            self._let_reopen(node)
        else:
            # Somebody had it closed there, and the node waits for nothing: assign it at once.
            self._reopening = None
            self._plan_anew(0.0)

    async def _record_taken(self) -> None:
        """Somebody else changed the record: a node takes a term when it restarts a channel."""
        try:
            owner = (await self._records.read(self._name)).meta.node
        except MetaError as error:
            self._failed(error)
            return
        if owner is not None:
            self._let_reopen(owner)
        self._check_owner()

    def _let_reopen(self, node: NodeId) -> None:
        """Give the node time to serve the channel again; none to one that is gone."""
        owner, now_s = self._nodes.find(node), self._context.clock.monotonic_s()
        until_s = now_s + self._timing.reopen_grace_s
        self._reopening = None if owner is None else (owner, until_s)
        if self._is_reopening():
            self._plan_anew(self._timing.reopen_grace_s)
        else:
            self._plan(0.0)

    def _is_reopening(self) -> bool:
        """Whether a node that may serve channels still has time to open this one again."""
        if self._reopening is None:
            return False
        owner, until_s = self._reopening
        here = self._nodes.find(owner.node_id) is owner and owner.node_id in self._nodes.accepting()
        return here and self._context.clock.monotonic_s() < until_s

    async def _reported(self, term: Term) -> None:
        """A client found nobody serving at this term; the first report makes a new assignment."""
        self._unconfirm(term)
        before = await self._records.read(self._name)
        after = await self._records.save(before, lost(before.meta, term))
        self._publish_confirmed(after)
        # A report that changed nothing is stale or repeated: an attempt may be in progress.
        self._follow_up(0.0 if after is not before else self._timing.reopen_grace_s)

    async def _holder(self, meta: PChannelMeta) -> NodeId | None:
        """The recorded owner, if it serves the recorded term already."""
        node = self._nodes.find(meta.node)
        # UNAVAILABLE: found dead at this term, so it needs a new one, whatever its node says.
        if node is None or meta.state is PChannelState.UNAVAILABLE:
            return None
        served = await self._within(self._timing.ask_deadline_s, node.status)
        held = any((it.channel.name, it.channel.term) == (meta.name, meta.term) for it in served)
        return node.node_id if held else None

    async def _remove(self, owner: NodeId, term: Term) -> None:
        """Close it at an earlier owner. Refused when that one has a lease and may still serve.

        `term`: the last one below the new owner's, so that no attempt asks for it twice: a node
        refuses to repeat a Remove, whether or not it has closed the channel by now.
        """
        node = self._nodes.find(owner)
        if node is None:
            return  # without a session it gets no ticks, whatever it takes its lease for
        limit_s = self._timing.remove_deadline_s
        try:
            await self._within(limit_s, lambda: node.remove(self._name, term))
        except Refused:
            # A node dropped meanwhile has no session, so it gets no ticks.
            if self._nodes.find(owner) is node:
                raise

    async def _within(self, limit_s: float, call: Callable[[], Awaitable[T]]) -> T:
        with deadline(self._context.clock, limit_s):
            return await call()
        raise Refused(StreamingCode.INNER, f"{self._name}: no answer from the node in {limit_s} s")

    def _unconfirm(self, term: Term) -> None:
        """Confirm this term with the node again, even when the next write fails."""
        if self._confirmed == term:
            self._confirmed = None

    def _is_served(self, meta: PChannelMeta) -> bool:
        """Served by the node session that confirmed it: one that came back lost its channels."""
        confirmed = meta.state is PChannelState.ASSIGNED and meta.term == self._confirmed
        return (
            confirmed
            and self._confirmed_node is not None
            and self._nodes.find(meta.node) is self._confirmed_node
        )

    def _publish_confirmed(self, recorded: RecordedChannel) -> None:
        """Publish the record if it changed.

        A record ASSIGNED left by an earlier coordinator is held back until the node confirms it.
        """
        meta = recorded.meta
        if meta.state is PChannelState.ASSIGNED and not self._is_served(meta):
            return
        self._publish(meta)

    def _publish(self, meta: PChannelMeta) -> None:
        if meta != self._published:
            self._assigner.tell(ChannelChanged(meta))
            self._published = meta

    def _follow_up(self, delay_s: float) -> None:
        """Plan an attempt if none is planned; cancel it when the channel is served."""
        if self._published is None or not self._is_served(self._published):
            self._plan(delay_s)
        elif self._planned is not None:
            self._planned.cancel()
            self._planned = None

    def _plan_anew(self, delay_s: float) -> None:
        if self._planned is not None:
            self._planned.cancel()
            self._planned = None
        self._plan(delay_s)

    def _plan(self, delay_s: float) -> None:
        if self._planned is None:
            self._planned = self._context.after(delay_s, EnsureServed())

    def _failed(self, error: Exception) -> None:
        self._retries.failed(str(error))
        pause_s, known = self._retries.pause_s(self._context.random), self._published
        if known is None or not self._is_served(known) or known.node in self._nodes.accepting():
            self._plan(pause_s)
        elif not self._move_planned:
            # It must leave a node that stops or is frozen, and nobody asks for that again.
            self._move_planned = True
            self._context.after(pause_s, Move())
