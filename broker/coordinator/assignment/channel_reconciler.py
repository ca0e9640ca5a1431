"""Keeps one pchannel on a node: the actor behind one row of the assignment table.

The row's transitions are rules of `broker/core/cluster/assignment.py`; each one is durable before
it is acted on. The assigner, which sees all rows, decides which node.

Why a former owner is waited for as long as it has a lease: the log fences what it writes, but ticks
that it announces are written nowhere. One without a lease has stopped by itself, and is not asked.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from broker.coordinator.assignment.streaming_version import streaming_version
from broker.coordinator.retries import Retries
from broker.core.cluster.assignment import Owner, PChannelMeta, access_at, assign, lost, served
from broker.model.channel import AccessMode, PChannel, PChannelState
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId, PChannelName, Term
from broker.ports.meta import Conflict, MetaError, MetaStore
from broker.ports.nodes import NodeControl

WARN_AFTER = 4
"""The first happens at every healthy start, because the node comes up after its coordinator."""

LET_GO = (StreamingCode.IGNORED_OPERATION, StreamingCode.UNMATCHED_CHANNEL_TERM)
"""What a node answers that has let go already, or serves a newer term."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReconcilerTiming:
    """How patient the coordinator is with a node.

    `assign_deadline_s` bounds opening a log, recovery of a large one included: cut short, it would
    begin anew at the next term and never end. `remove_deadline_s` bounds
    closing one, open transactions included, `ask_deadline_s` the other calls. A failed
    attempt is repeated after `retry_first_s`, doubling to `retry_max_s`. A node that closed a
    channel has `reopen_grace_s` to open it again by itself; one that is gone has
    `node_lost_grace_s` to come back before its channels are given to others.
    """

    assign_deadline_s: float = 300.0
    ask_deadline_s: float = 5.0
    remove_deadline_s: float = 30.0
    retry_first_s: float = 0.05
    retry_max_s: float = 5.0
    reopen_grace_s: float = 5.0
    node_lost_grace_s: float = 0.0
    reconcile_s: float = 15.0


class ChannelReconciler(Actor[ReconcilerMessage]):
    """One pchannel, brought to a node and back to one whenever it is lost."""

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
        self._host: NodeControl | None = None
        self._published: PChannelMeta | None = None
        self._settling: Timer | None = None
        self._vanished_s: float | None = None
        self._writable = False

    async def started(self, context: Context[ReconcilerMessage]) -> None:
        self._context = context
        self._assigner: Ref[AssignerMessage] = context.tree.find(self._assigner_path)
        self._assigner.tell(ReconcilerReady(self._name, context.self))
        context.every(self._timing.reconcile_s, Reconcile())
        self._plan(0.0)

    async def receive(self, batch: Sequence[Envelope[ReconcilerMessage]]) -> None:
        for envelope in batch:
            try:
                await self._handle(envelope.message)
            except Conflict:
                self._plan(self._timing.reopen_grace_s)  # the node has taken a term: let it
                self._check_owner()
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
                self._settling = None
                await self._settle()
            case Reconcile():
                self._note(await self._records.read(self._name))
                self._follow_up(0.0)
                await self._update_access()
            case AccessChanged():
                await self._update_access()
            case NodeOpenedChannel(node, _, term):
                await self._opened(node, term)
            case ChannelClosed(node, _, term):
                await self._closed(node, term)
            case ChannelReported(_, term):
                await self._reported(term)
            case NodesChanged():
                self._check_owner()
            case Move(node):
                await self._move(node)
            case _:
                assert_never(message)

    def _check_owner(self) -> None:
        """After a change of nodes: at once when the channel's own is gone, or is going."""
        known = self._published
        if known is None or not self._is_served(known):
            if known is not None and self._nodes.find(known.node) is not self._host:
                self._publish(lost(known, known.term))
            self._retries.succeeded()
            self._plan_anew(0.0)
        elif known.node not in self._nodes.accepting() and self._nodes.accepting():
            self._context.self.tell(Move())

    async def _move(self, node: NodeId | None) -> None:
        """Nothing happens when the channel is not served, which is mended first, or is well off."""
        before = await self._records.read(self._name)
        if not self._is_served(before.meta):
            return
        well_off = before.meta.node in self._nodes.accepting() if node is None else False
        if not well_off and before.meta.node != node:
            await self._assign(before, node, balanced=node is not None)

    async def _update_access(self) -> None:
        """A channel that is served for less than it should be is given to the same node anew."""
        before = await self._records.read(self._name)
        access = await self._access()
        if self._is_served(before.meta) and before.meta.access is not access:
            await self._assign(before, before.meta.node)

    async def _access(self) -> AccessMode:
        """What the channel is to be served for; appends, once they are allowed, stay so."""
        if not self._writable:
            version = await streaming_version(self._store)
            self._writable = access_at(version) is AccessMode.READ_WRITE
        return AccessMode.READ_WRITE if self._writable else AccessMode.READ_ONLY

    async def _settle(self) -> None:
        """One attempt to have the channel served; a failure is raised and tried again later."""
        before = await self._records.read(self._name)
        if self._is_served(before.meta):
            self._note(before)
        elif (held_by := await self._holder(before.meta)) is not None:
            await self._opened(held_by, before.meta.term)
            await self._update_access()
        elif (left_s := self._grace_left_s(before.meta)) > 0.0:
            self._plan(max(left_s, self._timing.retry_first_s))
        else:
            await self._assign(before)

    def _grace_left_s(self, meta: PChannelMeta) -> float:
        """How long the owner that vanished may still come back."""
        if meta.node is None or self._nodes.find(meta.node) is not None:
            self._vanished_s = None
            return 0.0
        now_s = self._context.clock.monotonic_s()
        self._vanished_s = now_s if self._vanished_s is None else self._vanished_s
        return self._vanished_s + self._timing.node_lost_grace_s - now_s

    async def _assign(
        self, before: RecordedChannel, chosen: NodeId | None = None, *, balanced: bool = False
    ) -> None:
        """Give the channel to a node at the next term; the record comes first, then the calls."""
        if chosen is None:
            choose = ChooseNode(self._name)
            chosen = await self._assigner.ask(choose, deadline_s=self._timing.ask_deadline_s)
        if chosen is None:
            self._plan(self._timing.reconcile_s)
            return
        log.debug("node chosen", node=chosen)
        node = self._nodes.find(chosen)
        access = await self._access()
        there = (before.meta.node, before.meta.access) == (chosen, access)
        if node is None or (self._is_served(before.meta) and there):
            raise Refused(StreamingCode.INNER, f"node {chosen} cannot be given {self._name} now")
        doubtful = self._retries.failures or not self._nodes.is_confirmed(chosen)
        if doubtful:  # burn no term on a dead node
            await self._within(self._timing.ask_deadline_s, node.status)
        meta = assign(lost(before.meta, before.meta.term), chosen, access)
        if balanced:
            meta = replace(meta, moved_ms=self._context.clock.wall_ms())
        recorded = await self._records.save(before, meta)
        self._note(recorded)
        for owner in meta.histories:
            await self._remove(owner)
        log.debug("owner recorded", node=chosen)
        channel = PChannel(meta.name, meta.term, meta.access)
        await self._within(self._timing.assign_deadline_s, lambda: node.assign(channel))
        log.debug("node has opened it", node=chosen)
        await self._opened(chosen, meta.term, recorded)

    async def _opened(
        self, node: NodeId, term: Term, before: RecordedChannel | None = None
    ) -> None:
        """The node says that it serves this term; believed when that is what was agreed on."""
        now_ms = self._context.clock.wall_ms()
        recorded = await self._records.change(
            self._name, lambda meta: served(meta, node, term, now_ms), before
        )
        meta = recorded.meta
        if (meta.state, meta.node, meta.term) == (PChannelState.ASSIGNED, node, term):
            self._confirmed, self._host = term, self._nodes.find(node)
            self._retries.succeeded()
            log.debug("owner confirmed", node=node)
        self._note(recorded)
        self._follow_up(self._timing.reopen_grace_s)

    async def _closed(self, node: NodeId, term: Term) -> None:
        """The node has stopped serving; a word from a former owner, or a late one, does nothing."""
        self._doubt(term)
        self._note(
            await self._records.change(
                self._name, lambda meta: lost(meta, term) if meta.node == node else meta
            )
        )
        self._follow_up(self._timing.reopen_grace_s)

    async def _reported(self, term: Term) -> None:
        """A client found nobody at this term. The first to say so brings about a new owner."""
        self._doubt(term)
        before = await self._records.read(self._name)
        after = await self._records.save(before, lost(before.meta, term))
        self._note(after)
        self._follow_up(0.0 if after is not before else self._timing.reopen_grace_s)

    async def _holder(self, meta: PChannelMeta) -> NodeId | None:
        """The recorded owner, when it serves the recorded term though nobody has told us."""
        node = self._nodes.find(meta.node)
        if node is None or meta.state is PChannelState.UNAVAILABLE:
            return None
        served = await self._within(self._timing.ask_deadline_s, node.status)
        held = any((it.channel.name, it.channel.term) == (meta.name, meta.term) for it in served)
        return node.node_id if held else None

    async def _remove(self, owner: Owner) -> None:
        """Raises Refused when it may still serve: it has a lease, and does not let go."""
        node = self._nodes.find(owner.node)
        if node is None:
            return
        try:
            await self._within(
                self._timing.remove_deadline_s, lambda: node.remove(self._name, owner.term)
            )
        except Refused as error:
            if error.refusal.code not in LET_GO and self._nodes.find(owner.node) is node:
                raise

    async def _within(self, limit_s: float, call: Callable[[], Awaitable[T]]) -> T:
        with deadline(self._context.clock, limit_s):
            return await call()
        raise Refused(StreamingCode.INNER, f"{self._name}: no answer from the node in {limit_s} s")

    def _doubt(self, term: Term) -> None:
        """Ask the node before believing in this term again, should the store fail us now."""
        if self._confirmed == term:
            self._confirmed = None

    def _is_served(self, meta: PChannelMeta) -> bool:
        """By the node that said so: one that came back since then knows nothing of it."""
        confirmed = meta.state is PChannelState.ASSIGNED and meta.term == self._confirmed
        return confirmed and self._host is not None and self._nodes.find(meta.node) is self._host

    def _note(self, recorded: RecordedChannel) -> None:
        """Tell the assigner when the record is not what it was told last.

        A record that says ASSIGNED, left by a coordinator before us, is kept back until the node
        has said the same.
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
        """Plan an attempt when none is planned, or none when the channel is served."""
        if self._published is None or not self._is_served(self._published):
            self._plan(delay_s)
        elif self._settling is not None:
            self._settling.cancel()
            self._settling = None

    def _plan_anew(self, delay_s: float) -> None:
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        self._plan(delay_s)

    def _plan(self, delay_s: float) -> None:
        if self._settling is None:
            self._settling = self._context.after(delay_s, EnsureServed())

    def _failed(self, error: Exception) -> None:
        self._retries.failed(str(error))
        self._plan(self._retries.pause_s(self._context.random))
