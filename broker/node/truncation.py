"""Decides what retention may remove of each pchannel, and has its Appender remove it.

A round: find what is due by retention alone, ask who holds it, decide, record who is passed, and
remove the rest. Nobody is asked while nothing is due.

While the coordinator does not answer, everything is kept; after `unasked_grace_s` only up to
`hold_bytes_max` of each pchannel, since no cursor could hold back more.

Why not in the Appender: it must not wait for another process while appends wait for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import anyio
import structlog

from actors import Actor, ActorError, Context, Envelope, Request
from broker.core.log.removal import expired, removal
from broker.model.channel import AccessMode
from broker.model.failure import Refused
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.model.retention.holders import (
    Hold,
    HolderKind,
    Removal,
)
from broker.model.retention.policy import (
    LogStart,
    SealedSegment,
)
from broker.node.appender_messages import Truncate
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel
from broker.ports.wal import Log, WalError

ANSWER_S = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TruncateLogs(Request[None]):
    """A timer: look what retention may remove. Answered when the Appenders have been told."""


@dataclass(frozen=True, slots=True)
class Due:
    """What retention alone would remove of a channel: some of its oldest segments."""

    channel: OpenChannel
    segments: Sequence[SealedSegment]

    @property
    def start(self) -> LogStart:
        """Where the log begins now."""
        bounds = self.channel.log.bounds()
        return LogStart(bounds.first_id, bounds.removed_tick)


class Truncation(Actor[TruncateLogs]):
    """See the module."""

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._rule = node.retention
        self._answered_s = 0.0

    async def started(self, context: Context[TruncateLogs]) -> None:
        """Look every `retention_period_s`."""
        self._clock = context.clock
        self._answered_s = context.clock.monotonic_s()
        context.on_beat(self._node.limits.retention_period_s, TruncateLogs())

    async def receive(self, batch: Sequence[Envelope[TruncateLogs]]) -> None:
        """Look once, however many timers are due."""
        # The default: nothing is ever due, so that an idle broker does nothing here.
        if not self._rule.now.keeps_all or self._rule.removals:
            await self._look()
        for envelope in batch:
            envelope.reply(None)

    async def _look(self) -> None:
        now_ms = self._clock.wall_ms()
        channels = {it.channel.name: it for it in self._node.open_channels.all() if _removes(it)}
        due = {name: self._due(it, now_ms) for name, it in channels.items()}
        held = {name: it for name, it in due.items() if it.segments}
        known = await self._ask(held)
        removals = {}
        for name, it in held.items():
            removals[name] = await self._decide(it, known, now_ms)
        await self._remove(due, removals, asked=known is not None)

    def statistics(self) -> Mapping[str, int | float | str]:
        """What was removed without asking; and why nobody could be asked, if so."""
        why = next(iter(self._rule.unasked.values()), "")
        return {"unasked_bytes": self._rule.unasked_bytes, **({"error": why} if why else {})}

    async def _ask(
        self, due: Mapping[PChannelName, Due]
    ) -> Mapping[PChannelName, Sequence[Hold]] | None:
        """The holds of others; None when nobody answers."""
        self._rule.unasked = {it: why for it, why in self._rule.unasked.items() if it in due}
        if not due:
            # Nobody had to answer, so that the grace begins with the first question.
            self._answered_s = self._clock.monotonic_s()
            return {}
        try:
            with anyio.fail_after(ANSWER_S):
                found = await self._node.holds.of({name: it.start for name, it in due.items()})
        except (Refused, TimeoutError) as error:
            why = str(error) or f"no answer within {ANSWER_S:g} s"
            if not self._rule.unasked:
                log.warning("holders of the log are not known: keeping what is due", error=why)
            self._rule.unasked = dict.fromkeys(due, why)
            return None
        self._answered_s = self._clock.monotonic_s()
        self._rule.unasked = {}
        self._rule.known = {name: tuple(holds) for name, holds in found.items()}
        return found

    def _due(self, channel: OpenChannel, now_ms: int) -> Due:
        segments = channel.log.segments()
        bounds = channel.log.bounds()
        active_bytes = bounds.size_bytes - sum([it.size_bytes for it in segments])
        count = expired(segments, active_bytes, self._rule.now, now_ms)
        return Due(channel, segments[:count])

    async def _decide(
        self, due: Due, known: Mapping[PChannelName, Sequence[Hold]] | None, now_ms: int
    ) -> Removal:
        channel = due.channel
        # Those that were known last are better than none: holders mostly move forward.
        others = (self._rule.known if known is None else known).get(channel.channel.name, ())
        holds = own_holds(channel)
        if known is None and self._waits():
            return Removal(due.start.first_id)
        try:
            holds += await located(channel.log, others, due.segments[-1].next_id)
        except WalError as error:
            log.warning(
                "cannot find what is held, so nothing is removed",
                pchannel=channel.channel.name,
                error=str(error),
            )
            return Removal(due.start.first_id)
        unasked = self._rule.hold_bytes_max if known is None else None
        return removal(due.segments, due.start.first_id, holds, now_ms, unasked)

    def _waits(self) -> bool:
        silent_s = self._clock.monotonic_s() - self._answered_s
        return silent_s < self._node.limits.unasked_grace_s

    async def _remove(
        self,
        due: Mapping[PChannelName, Due],
        removals: Mapping[PChannelName, Removal],
        *,
        asked: bool,
    ) -> None:
        allowed = await self._allowed(removals) if asked else removals.keys()
        for name, it in due.items():
            # Without anything to remove, too: a quiet log's old segment is sealed by that.
            before_id = it.start.first_id
            if name in removals and name in allowed:
                before_id = removals[name].first_id
                if not asked and removals[name].bytes:
                    self._rule.unasked_bytes += removals[name].bytes
                    log.warning(
                        "removed without asking who holds it: the log exceeds its bound",
                        pchannel=name,
                        bytes=removals[name].bytes,
                        to_tick=removals[name].tick,
                    )
            try:
                it.channel.appender.tell(Truncate(before_id))
            except ActorError:
                continue  # full or dying: the next round comes soon

    async def _allowed(self, removals: Mapping[PChannelName, Removal]) -> Sequence[PChannelName]:
        """Those that may be removed; who is passed has been recorded by then."""
        # A channel that had holders and has none now is reported once more.
        ended = {
            name: Removal(MessageId(0)) for name in self._rule.removals if name not in removals
        }
        self._rule.removals = dict(removals)
        reports = {**removals, **ended}
        if not any(it.tick or it.holders for it in reports.values()) and not ended:
            return [*removals]
        for name, found in removals.items():
            for passed in found.passed:
                log.warning(
                    "a holder of the log is passed: what it needs is removed",
                    pchannel=name,
                    holder=f"{passed.kind} {passed.name}",
                    cause=passed.cause,
                    bytes=passed.bytes,
                )
        try:
            with anyio.fail_after(ANSWER_S):
                return [*await self._node.holds.allow(reports)]
        except (Refused, TimeoutError) as error:
            log.warning("cannot record what retention removes: keeping it", error=str(error))
            return []


def own_holds(channel: OpenChannel) -> list[Hold]:
    """What the owner of a pchannel needs itself, without any limit."""
    saved = channel.snapshot.checkpoint
    assert saved is not None, channel.channel
    # The next owner replays from the checkpoint and needs each open transaction whole.
    holds = [Hold(HolderKind.SNAPSHOT, "recovery", from_id=saved.id)]
    oldest = channel.transactions.oldest_begin_id
    if oldest is not None:
        view = channel.transactions.views()[0]
        name = f"staged {view.stage}" if view.stage is not None else str(view.context.id)
        holds.append(Hold(HolderKind.TRANSACTION, name, from_id=oldest))
    return holds


async def located(log: Log, holds: Sequence[Hold], end: MessageId) -> list[Hold]:
    """The holds, each with the first id that it needs; `end` for ids from there on.

    Raises WalError. One read of the log for each hold that needs an id below `end`, and one more.
    """
    found = []
    reached = False
    for hold in sorted(holds, key=lambda it: it.tick):
        from_id = hold.from_id
        if hold.tick:
            behind = end if reached else await _behind(log, hold.tick)
            # Last confirmed ids only grow: whoever is at a later tick needs nothing below either.
            reached = behind >= end
            from_id = min(behind, from_id or behind)
        found.append(replace(hold, from_id=from_id))
    return found


async def _behind(log: Log, tick: TimeTick) -> MessageId:
    """Every message behind the tick has this id or a larger one, with its whole transaction."""
    next_id = log.bounds().next_id
    found = await log.seek_tick(TimeTick(tick + 1))
    if found >= next_id:
        return found
    # A transaction that commits behind the tick may have begun before it.
    (record, *_) = await log.read(found, 1)
    return min(found, record.last_confirmed_id)


def _removes(channel: OpenChannel) -> bool:
    """Whether it may remove anything: without a snapshot, a restart replays the whole log."""
    writes = channel.channel.access is AccessMode.READ_WRITE
    return writes and channel.snapshot.checkpoint is not None
