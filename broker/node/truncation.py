"""Decides what retention may remove of each pchannel, and has its Appender remove it.

A round: find what is due by retention alone, ask who holds it, decide, record who is passed, and
remove the rest. Nobody is asked while nothing is due.

While the coordinator does not answer, or cannot record who is passed (its disk is full), everything
is kept; after `unasked_grace_s` only up to `hold_bytes_max` of each pchannel, since no cursor could
hold back more.

Why not in the Appender: it must not wait for another process while appends wait for it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import anyio
import structlog

from actors import Actor, ActorError, Context, Envelope, Request, Timer
from broker.core.groups.furthest_groups import furthest_behind
from broker.core.groups.group_state import GroupState
from broker.core.space.removal import expired, removal
from broker.core.space.retention_due import agreed_now_ms
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
from broker.ports.wal import Log, LogClosed, WalError

ANSWER_S = 5.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TruncateLogs(Request[None]):
    """A timer: look what retention may remove. Answered when the Appenders have been told."""


@dataclass(frozen=True, slots=True)
class Due:
    """What retention alone would remove of a channel: some of its oldest segments.

    `now_ms`: when it is, as `agreed_now_ms` says.
    """

    channel: OpenChannel
    segments: Sequence[SealedSegment]
    now_ms: int

    @property
    def start(self) -> LogStart:
        """Where the log begins now."""
        bounds = self.channel.log.bounds()
        return LogStart(bounds.first_id, bounds.removed_tick)


class Truncation(Actor[TruncateLogs]):
    """See the module."""

    _context: Context[TruncateLogs]

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._rule = node.retention
        self._answered_s = self._period_s = 0.0
        self._beat: Timer | None = None

    async def started(self, context: Context[TruncateLogs]) -> None:
        """Look every `retention_period_s`."""
        self._clock = context.clock
        self._context = context
        self._answered_s = context.clock.monotonic_s()
        self._set_beat()
        self._node.live.listen("truncation", lambda: context.self.tell(TruncateLogs()))

    async def receive(self, batch: Sequence[Envelope[TruncateLogs]]) -> None:
        """Look once, however many timers are due."""
        self._set_beat()
        # The default: nothing is ever due, so that an idle broker does nothing here.
        if not self._rule.now.keeps_all or self._rule.removals:
            await self._look()
        else:
            # Nothing is kept for anyone: the grace begins when retention is switched on.
            self._answered_s = self._clock.monotonic_s()
            self._rule.unasked = {}
        for envelope in batch:
            envelope.reply(None)

    def _set_beat(self) -> None:
        period_s = self._node.limits.retention_period_s
        if period_s == self._period_s:
            return
        if self._beat is not None:
            self._beat.cancel()
        self._period_s = period_s
        self._beat = self._context.on_beat(period_s, TruncateLogs())

    async def _look(self) -> None:
        channels = {it.channel.name: it for it in self._node.open_channels.all() if _removes(it)}
        due = {name: self._due(it) for name, it in channels.items()}
        held = {name: it for name, it in due.items() if it.segments}
        known = await self._ask(held)
        removals = await self._decisions(held, known)
        allowed = None if known is None else await self._allowed(removals)
        if known is not None and allowed is None:
            removals = await self._decisions(held, None)
        self._remove(due, removals, allowed)

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
            self._unanswered(due, "the holders are not known", error)
            return None
        self._rule.known = {name: tuple(holds) for name, holds in found.items()}
        return found

    def _unanswered(self, due: Iterable[PChannelName], what: str, error: Exception) -> None:
        why = f"{what}: {str(error) or f'no answer within {ANSWER_S:g} s'}"
        if not self._rule.unasked:
            log.warning("retention keeps what is due for now", error=why)
        self._rule.unasked = dict.fromkeys(due, why)

    def _due(self, channel: OpenChannel) -> Due:
        segments = channel.log.segments()
        bounds = channel.log.bounds()
        active_bytes = bounds.size_bytes - sum([it.size_bytes for it in segments])
        now_ms = agreed_now_ms(self._clock.wall_ms(), channel.tail.closed.tick)
        count = expired(segments, active_bytes, self._rule.now, now_ms)
        return Due(channel, segments[:count], now_ms)

    async def _decisions(
        self,
        due: Mapping[PChannelName, Due],
        known: Mapping[PChannelName, Sequence[Hold]] | None,
    ) -> Mapping[PChannelName, Removal]:
        """What to remove of each; without any answer (`known` None) nothing before the grace."""
        found = {}
        for name, it in due.items():
            # Those that were known last are better than none: holders mostly move forward.
            others = (self._rule.known if known is None else known).get(name, ())
            found[name] = Removal(it.start.first_id)
            if known is None and self._waits():
                continue
            unasked = self._rule.hold_bytes_max if known is None else None
            try:
                own = own_holds(it.channel, it.segments, self._rule.hold_bytes_max)
                found[name] = await _decide(it, [*own, *others], unasked)
            except Exception as error:  # noqa: BLE001 - one log must not stop the others
                log.warning(
                    "cannot decide what to remove, so nothing is removed",
                    pchannel=name,
                    error=repr(error),
                )
        return found

    def _waits(self) -> bool:
        silent_s = self._clock.monotonic_s() - self._answered_s
        return silent_s < self._node.limits.unasked_grace_s

    def _remove(
        self,
        due: Mapping[PChannelName, Due],
        removals: Mapping[PChannelName, Removal],
        allowed: Collection[PChannelName] | None,
    ) -> None:
        """Have the Appenders remove what is allowed; `allowed` None: nobody could be asked."""
        for name, it in due.items():
            # Without anything to remove, too: a quiet log's old segment is sealed by that.
            before_id = it.start.first_id
            if name in removals and (allowed is None or name in allowed):
                before_id = removals[name].first_id
                if allowed is None and removals[name].bytes:
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

    async def _allowed(
        self, removals: Mapping[PChannelName, Removal]
    ) -> Collection[PChannelName] | None:
        """Those that may be removed, once who is passed is recorded; None: it is not recorded."""
        # A channel that had holders and has none now is reported once more.
        ended = {
            name: Removal(MessageId(0)) for name in self._rule.removals if name not in removals
        }
        reports = {**removals, **ended}
        allowed: Collection[PChannelName] = removals.keys()
        if ended or any(it.tick or it.holders for it in reports.values()):
            # Until it is recorded, so that the next round reports those that ended.
            self._rule.removals = reports
            try:
                with anyio.fail_after(ANSWER_S):
                    allowed = await self._node.holds.allow(reports)
            except (Refused, TimeoutError) as error:
                self._unanswered(removals, "what retention removes cannot be recorded", error)
                return None
        self._rule.removals = dict(removals)
        # Only now: a coordinator that answers but cannot write must not prolong the grace.
        self._answered_s = self._clock.monotonic_s()
        self._rule.unasked = {}
        for name, it in removals.items():
            if name in allowed:
                _warn_of_passed(name, it)
        return allowed


def _warn_of_passed(name: PChannelName, removal: Removal) -> None:
    for passed in removal.passed:
        log.warning(
            "a holder of the log is passed: what it needs is removed",
            pchannel=name,
            holder=f"{passed.kind} {passed.name}",
            cause=passed.cause,
            bytes=passed.bytes,
        )


async def _decide(due: Due, holds: Sequence[Hold], unasked: int | None) -> Removal:
    """What to remove of a channel; `unasked`: see `removal`. Raises WalError."""
    channel = due.channel
    found, error = await located(channel.log, holds, due.segments[-1].next_id)
    if error is not None:
        log.warning(
            "cannot read the log where a holder is, so it counts as at its beginning",
            pchannel=channel.channel.name,
            error=str(error),
        )
    decided = removal(due.segments, due.start.first_id, found, due.now_ms, unasked)
    # A reader that is passed learns it at its next step, and is gone then: nothing to remember.
    passed = tuple(it for it in decided.passed if it.kind is not HolderKind.READER)
    return replace(decided, passed=passed)


def own_holds(
    channel: OpenChannel, due: Sequence[SealedSegment] = (), bytes_max: int = 0
) -> list[Hold]:
    """What the owner of a pchannel knows itself: its own needs, those of open readers and groups.

    `due`: what may be removed. `bytes_max`: how much each of these holds back at the most; its own
    needs have no limit.
    """
    saved = channel.snapshot.checkpoint
    assert saved is not None, channel.channel
    # The next owner replays from the checkpoint and needs each open transaction whole.
    holds = [Hold(HolderKind.SNAPSHOT, "recovery", from_id=saved.id)]
    oldest = channel.transactions.oldest_begin_id
    if oldest is not None:
        view = channel.transactions.views()[0]
        name = f"staged {view.stage}" if view.stage is not None else str(view.context.id)
        holds.append(Hold(HolderKind.TRANSACTION, name, from_id=oldest))
    if not bytes_max:
        return holds
    groups = channel.groups.table.groups.values()
    return [*holds, *reader_holds(channel, bytes_max), *holds_of_groups(groups, due, bytes_max)]


def reader_holds(channel: OpenChannel, bytes_max: int) -> list[Hold]:
    """What open readers were not given yet."""
    return [
        Hold(
            HolderKind.READER,
            f"of {reader.reads}",
            from_id=needed,
            bytes_max=bytes_max,
            vchannels=reader.vchannels,
        )
        for reader in channel.readers
        if (needed := reader.needed_from) is not None
    ]


def holds_of_groups(
    states: Iterable[GroupState], due: Sequence[SealedSegment], bytes_max: int
) -> list[Hold]:
    """What consumer groups have not acknowledged: of those that are furthest behind."""
    return [
        Hold(
            HolderKind.GROUP,
            f"{it.key.name} on {it.key.vchannel}",
            tick=it.floor,
            bytes_max=bytes_max,
            vchannels=frozenset({it.key.vchannel}),
        )
        for it in furthest_behind(states, due, bytes_max)
    ]


async def located(
    log: Log, holds: Sequence[Hold], end: MessageId
) -> tuple[list[Hold], WalError | None]:
    """The holds, each with the first id that it needs; `end` for ids from there on.

    Where the log cannot be read (the error), a hold has the log's first id: its limits count, so
    that damage does not keep the log for ever. Raises LogClosed. One read of the log for each hold
    that needs an id below `end`, and one more.
    """
    found = []
    reached = False
    failure: WalError | None = None
    for hold in sorted(holds, key=lambda it: it.tick):
        from_id = hold.from_id
        if hold.tick:
            try:
                behind = end if reached else await behind_tick(log, hold.tick)
            except LogClosed:
                raise  # says nothing of the place, and nothing is removed by then
            except WalError as error:
                behind, failure = log.bounds().first_id, error
            # Last confirmed ids only grow: whoever is at a later tick needs nothing below either.
            reached = behind >= end
            from_id = min(behind, from_id or behind)
        found.append(replace(hold, from_id=from_id))
    return found, failure


async def behind_tick(log: Log, tick: TimeTick) -> MessageId:
    """Every message behind the tick has this id or a larger one, with its whole transaction."""
    next_id = log.bounds().next_id
    found = await log.seek_tick(TimeTick(tick + 1))
    if found >= next_id:
        return found
    # A transaction that commits behind the tick may have begun before it.
    records = await log.read(found, 1)
    # Nothing where damage is skipped up to the end of the log.
    return min([found, *[it.last_confirmed_id for it in records[:1]]])


def _removes(channel: OpenChannel) -> bool:
    """Whether it may remove anything: without a snapshot, a restart replays the whole log."""
    writes = channel.channel.access is AccessMode.READ_WRITE
    return writes and channel.snapshot.checkpoint is not None
