"""Compacts the collections of this node's pchannels by key, one pass at a time.

Each round asks the catalog which collections are compacted, looks what the segments of each
pchannel hold of them, and begins a pass where enough of a vchannel is not clean, or where
tombstones may go.
Only sealed segments are compacted that a restart does not replay; an active one with enough of what
is not clean is sealed for that. A backup does not hold passes up: it links segment files first, and
fails with a sentence when it would need one that was written anew meanwhile.

Why an actor of its own, and small steps: a pass takes minutes, and must stop at once when the node
does. It uses about a quarter of a core.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
import structlog

from actors import Actor, ActorError, Context, Envelope, Request, Timer
from broker.core.compaction.compaction_due import (
    SegmentShare,
    dirty_bytes,
    is_due,
    tombstones_due,
)
from broker.core.compaction.key_scan import Target
from broker.core.naming import collection_id_of
from broker.model.channel import AccessMode
from broker.model.failure import Refused
from broker.model.ids import TICK_LOGICAL_BITS, CollectionId, MessageId, PChannelName, TimeTick
from broker.model.retention.compaction import Compaction
from broker.model.retention.dead import Contents
from broker.model.retention.policy import SealedSegment
from broker.node.appender_messages import SealLog
from broker.node.compaction.compaction_pass import CompactionPass, PassPlan, Phase
from broker.node.directory_messages import Located
from broker.node.space.given_back import ANSWER_S
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.node.state.oracle_view import OracleView
from broker.ports.wal import Corrupt, LogClosed, NotNow, WalError

SEALS_AT: Final = 4
"""An active segment is looked at again when it has grown by a part of so many."""

SEALED_FEW: Final = 32
"""For each so many sealed segments an active one must have grown by `bytes_min` more: sealed ones
stay, almost empty, until retention removes them."""

WAITS_MAX: Final = 64
"""A pchannel whose passes keep failing waits for so many rounds at most, twice as many each time: a
pass that fails has read all that is due."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CompactLogs(Request[None]):
    """A timer: go on with the pass, or look where one is due. Answered after one step."""


@dataclass(slots=True)
class _Known:
    """What is known of one open log: what its segments hold, by their end and size.

    `failed`: passes in a row. `retry_s`: no pass begins before.
    """

    channel: OpenChannel
    contents: dict[tuple[MessageId, int], Contents] = field(default_factory=dict)
    active: Contents = field(default_factory=dict)
    active_at: tuple[MessageId, int] = (MessageId(0), 0)
    trouble: str = ""
    failed: int = 0
    retry_s: float = 0.0


class Compactor(Actor[CompactLogs]):
    """See the module."""

    _context: Context[CompactLogs]

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._known: dict[PChannelName, _Known] = {}
        self._pass: CompactionPass | None = None
        self._passes = self._rewritten = self._given_back = self._failures = 0
        self._error = ""
        self._beat: Timer | None = None
        self._period_s = 0.0

    async def started(self, context: Context[CompactLogs]) -> None:
        """Look every `retention_period_s`."""
        self._context = context
        self._set_beat()
        self._node.live.listen("compaction", lambda: context.self.tell(CompactLogs()))

    async def receive(self, batch: Sequence[Envelope[CompactLogs]]) -> None:
        """One step; come again soon while there is more to do."""
        self._set_beat()
        try:
            if await self._step():
                self._context.after(0.0, CompactLogs())
        except (Refused, TimeoutError) as error:
            self._failed(f"what is needed is not known: {str(error) or 'no answer'}")
        for envelope in batch:
            envelope.reply(None)

    def statistics(self) -> Mapping[str, int | float | str]:
        """What was removed since the start, the pass that runs, and why none does."""
        troubles = [f"{name}: {it.trouble}" for name, it in self._known.items() if it.trouble]
        why = "; ".join(troubles) or self._error
        running = {} if self._pass is None else {"pchannel": self._pass.channel.channel.name}
        return {
            "passes": self._passes,
            "given_back_bytes": self._given_back,
            "rewritten_segments": self._rewritten,
            "failures": self._failures,
            **running,
            **({"error": why} if why else {}),
        }

    def _set_beat(self) -> None:
        period_s = self._node.limits.retention_period_s
        if period_s != self._period_s:
            if self._beat is not None:
                self._beat.cancel()
            self._period_s = period_s
            self._beat = self._context.on_beat(period_s, CompactLogs())

    async def _step(self) -> bool:
        """Whether there is more to do now. Raises Refused, TimeoutError."""
        running = self._pass
        if running is not None and not await self._is_wanted(running):
            self._pass = running = None
        if running is None:
            self._pass = running = await self._next_pass()
            return running is not None
        name = running.channel.channel.name
        given, rewritten = running.given_back, running.rewritten
        try:
            await running.step(self._context.clock.wall_ms())
        except WalError as error:
            self._pass = None
            self._give_up(name, error)
            return True  # the other pchannels do not wait for this one
        self._given_back += running.given_back - given
        self._rewritten += running.rewritten - rewritten
        if running.phase is Phase.DONE:
            self._error, self._known[name].failed = "", 0
            self._passes += 1
            self._pass = None
            log.info(
                "compacted",
                pchannel=name,
                vchannels=len(running.plan.targets),
                upto=running.upto,
                bytes=running.given_back,
            )
        return True

    def _give_up(self, name: PChannelName, error: WalError) -> None:
        """Say when the next pass over a pchannel begins, and why this one has ended."""
        known, rounds = self._known[name], 1
        match error:
            case Corrupt():
                # What cannot be read may be of any key: it stays as it is until the channel moves.
                known.trouble = str(error)
                self._failed(f"{name} is damaged, so nothing is compacted there: {error}")
            case LogClosed() | NotNow():
                pass  # its next owner, or a later pass, begins anew
            case _:
                rounds = min(2**known.failed, WAITS_MAX)
                known.failed += 1
                self._failed(f"{name}: {error}")
        known.retry_s = self._context.clock.monotonic_s() + rounds * self._period_s

    async def _is_wanted(self, running: CompactionPass) -> bool:
        """Whether its log is open here, and nobody has altered a collection that it removes of."""
        channel = running.channel
        if self._node.open_channels.find(channel.channel.name) is not channel:
            return False
        if running.phase is not Phase.REWRITE:
            return True
        now = await self._policies()
        return all(
            (id := collection_id_of(name)) is not None and now.get(id) == policy
            for name, policy in running.plan.policies.items()
        )

    async def _policies(self) -> Mapping[CollectionId, Compaction]:
        with anyio.fail_after(ANSWER_S):
            return await self._node.catalog.compactions()

    async def _next_pass(self) -> CompactionPass | None:
        policies = await self._policies()
        if not policies:
            self._known = {}
            return None
        channels = {it.channel.name: it for it in self._node.open_channels.all() if _compacts(it)}
        self._known = {
            name: it
            for name, it in self._known.items()
            if name in channels and channels[name] is it.channel
        }
        for name, channel in channels.items():
            known = self._known.setdefault(name, _Known(channel))
            if known.trouble or self._context.clock.monotonic_s() < known.retry_s:
                continue
            try:
                plan = await self._plan(known, policies)
            except (LogClosed, NotNow):
                continue
            except WalError as error:
                known.trouble = str(error) if isinstance(error, Corrupt) else ""
                self._failed(f"{name}: {error}")
                continue
            if plan is not None:
                return CompactionPass(channel, self._node, plan, self._located(channel))
        return None

    def _located(self, channel: OpenChannel) -> Located:
        limits = self._node.limits
        oracle = OracleView(self._node.ticks, self._context.clock, limits.barrier_wait_s_max)
        return Located(
            *(channel.channel, channel.appender, channel.backlog, channel, channel.closed, oracle),
            groups=channel.groups,
        )

    async def _plan(
        self, known: _Known, policies: Mapping[CollectionId, Compaction]
    ) -> PassPlan | None:
        """What is due of a pchannel: vchannels with one lag, the most of them. Raises WalError."""
        await self._look(known)
        channel = known.channel
        channel.compactions.forget_removed(channel.log.bounds().removed_tick)
        segments = [it for it in channel.log.segments() if _is_behind(channel, it)]
        parts = _parts(known, segments)
        wanted = {
            name: policy
            for name in {*parts, *known.active}
            if (id := collection_id_of(name)) is not None
            and (policy := policies.get(id)) is not None
        }
        self._seal_if_worth(known, wanted, parts)
        now_ms = self._context.clock.wall_ms()
        due: dict[TimeTick, dict[str, Target]] = {}
        gone = set[str]()
        for name, policy in wanted.items():
            upto = _upto(segments, policy, now_ms)
            state = channel.compactions.of(name)
            tombstones = tombstones_due(state, policy, now_ms)
            # What is too young yet counts when it is not: else it would be due for ever.
            old = [it for it in parts.get(name, ()) if it.last_tick <= upto]
            worth = upto > state.clean and self._is_worth(old, state.clean)
            if not (tombstones or worth):
                continue
            if tombstones:
                gone.add(name)
            horizon = state.horizon if tombstones else TimeTick(0)
            due.setdefault(upto if worth else state.clean, {})[name] = Target(state.clean, horizon)
        if not due:
            return None
        upto, targets = max(due.items(), key=lambda it: len(it[1]))
        covered = [
            it for at, it in enumerate(segments) if not at or segments[at - 1].last_tick < upto
        ]
        first_id = channel.log.bounds().first_id
        planned = {name: wanted[name] for name in targets}
        return PassPlan(targets, upto, covered, first_id, frozenset(gone & planned.keys()), planned)

    def _is_worth(self, parts: Sequence[SegmentShare], clean: TimeTick) -> bool:
        total = sum([it.bytes for it in parts])
        return is_due(dirty_bytes(parts, clean), total, self._node.limits.compaction)

    async def _look(self, known: _Known) -> None:
        """Read what new segments hold, and the active one if it has grown. Raises WalError."""
        log_of, contents = known.channel.log, {}
        for segment in log_of.segments():
            key = segment.next_id, segment.size_bytes
            found = known.contents.get(key)
            contents[key] = await log_of.contents(segment) if found is None else found
        known.contents = contents
        sealed = log_of.segments()
        begins = sealed[-1].next_id if sealed else log_of.bounds().first_id
        size = log_of.bounds().size_bytes - sum([it.size_bytes for it in sealed])
        at, before = known.active_at
        least = self._node.limits.compaction.bytes_min
        grown = at != begins or size >= before + before // SEALS_AT
        if size >= least and grown:
            known.active, known.active_at = await log_of.contents(None), (begins, size)
        elif at != begins:
            known.active, known.active_at = {}, (begins, 0)

    def _seal_if_worth(
        self,
        known: _Known,
        wanted: Mapping[str, Compaction],
        parts: Mapping[str, Sequence[SegmentShare]],
    ) -> None:
        """Have the active segment sealed if enough of it is not clean."""
        shares = self._node.limits.compaction
        for name in wanted:
            part = known.active.get(name)
            sealed = parts.get(name, [])
            total = sum([it.bytes for it in sealed]) + (0 if part is None else part.bytes)
            least = shares.bytes_min * max(1, len(known.contents) // SEALED_FEW)
            if part is not None and part.bytes >= least and is_due(part.bytes, total, shares):
                known.active = {}
                try:
                    known.channel.appender.tell(SealLog())
                except ActorError:
                    pass  # full or dying: it is looked at again once it has grown
                return

    def _failed(self, why: str) -> None:
        self._failures += 1
        if why != self._error:
            log.warning("nothing can be compacted now", error=why)
        self._error = why


def _compacts(channel: OpenChannel) -> bool:
    writes = channel.channel.access is AccessMode.READ_WRITE
    return writes and channel.log.gives_back and channel.snapshot.checkpoint is not None


def _is_behind(channel: OpenChannel, segment: SealedSegment) -> bool:
    """Whether a restart replays nothing of it, and readers find something published behind."""
    saved = channel.snapshot.checkpoint
    assert saved is not None, channel.channel
    return segment.next_id <= saved.id and segment.next_id < channel.tail.next_id


def _parts(known: _Known, segments: Sequence[SealedSegment]) -> dict[str, list[SegmentShare]]:
    found: dict[str, list[SegmentShare]] = {}
    for segment in segments:
        contents = known.contents.get((segment.next_id, segment.size_bytes), {})
        for name, part in contents.items():
            found.setdefault(name, []).append(SegmentShare(segment.last_tick, part.bytes))
    return found


def _upto(segments: Sequence[SealedSegment], policy: Compaction, now_ms: int) -> TimeTick:
    if not segments:
        return TimeTick(0)
    old = TimeTick(max(0, now_ms - policy.lag_ms) << TICK_LOGICAL_BITS)
    return min(segments[-1].last_tick, old)
