"""Barriers of one sort by name: who may join and report, and who is told what passed.

Owns the groups, their leases, and those who watch. It remembers nothing over a restart: peers are
told to join again, and watchers never see a tick that is not above the last one they had.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import assert_never

from actors import Actor, Context, Envelope
from broker.core.time import tso
from broker.core.time.barrier import ReportVerdict
from broker.core.time.barrier_peers import PeerLease
from broker.model.barrier import BarrierKind
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import PChannelName, TimeTick
from broker.timesync.group import Group
from broker.timesync.messages import (
    CLUSTER_BARRIER,
    BarrierMessage,
    FeedTicks,
    Join,
    Joined,
    LeaveBarrier,
    ListBarriers,
    NewestTick,
    NextTicks,
    Reported,
    ReportTick,
    SweepBarriers,
)
from broker.timesync.watchers import Watchers

LOOK_ROUND_S = 0.25
LEASE_S_MIN, LEASE_S_MAX = 0.5, 3600.0
INTERVAL_MS_MAX = 3_600_000
NAME_LENGTH_MAX = 255
BARRIERS_MAX = 1024
PEERS_MAX = 16_384
"""Over all barriers of an actor."""

SHOWN_MAX = 20
"""Names in one figure; the list of barriers has all of them."""

EARLY_MAX = 1024
"""Reports that may wait, right after a start, until it is known how far the pchannels are."""

FORGET_S = 600.0
"""A barrier that had no peers for so long is forgotten."""

AHEAD_MS_MAX = 10_000
"""A report may be so far past what was closed at the last look: the look is not always fresh."""

log = logging.getLogger("broker.timesync")
Asked = Envelope[BarrierMessage]


class Barriers(Actor[BarrierMessage]):
    """What SoftBarrier and HardBarrier share; `kinds`: those it keeps."""

    kinds: frozenset[BarrierKind]
    _context: Context[BarrierMessage]

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._watchers = Watchers()
        self._early: list[Asked] = []
        self._horizon = TimeTick(0)
        self._removals = 0

    async def started(self, context: Context[BarrierMessage]) -> None:
        self._context = context
        context.every(LOOK_ROUND_S, SweepBarriers())

    async def receive(self, batch: Sequence[Asked]) -> None:
        for envelope in batch:
            self._answer(envelope)

    def statistics(self) -> Mapping[str, int | float | str]:
        """`silent`: each as barrier/peer; `removed`: likewise, those that have not come back."""
        now_s = self._now_s()
        views = [self._groups[name].view(now_s) for name in sorted(self._groups)]
        return {
            "barriers": len(views),
            "peers": sum(len(view.peers) for view in views),
            "ticks": _shown([f"{view.name} {view.tick}" for view in views]),
            "silent": _shown([f"{view.name}/{it}" for view in views for it in view.silent]),
            "removed": _shown([f"{view.name}/{it}" for view in views for it in view.removed]),
            "removals": self._removals,
            "watches": len(self._watchers),
        }

    def feed(self, ticks: Mapping[PChannelName, TimeTick]) -> TimeTick:
        """What a FeedTicks does. Only the SoftBarrier has a barrier for it."""
        raise Refused(StreamingCode.INVALID_ARGUMENT, "pchannels feed the soft barrier only")

    def _answer(self, envelope: Asked) -> None:
        try:
            self._handle(envelope)
        except Refused as refused:
            envelope.fail(refused)

    def _handle(self, envelope: Asked) -> None:
        match envelope.message:
            case Join() as join:
                envelope.reply(self._join(join))
            case ReportTick() as report:
                if report.tick and not self._horizon and len(self._early) < EARLY_MAX:
                    self._early.append(envelope)
                else:
                    envelope.reply(self._report(report))
            case LeaveBarrier() as leave:
                self._leave(leave)
                envelope.reply(None)
            case NextTicks(barrier, after):
                self._watch(envelope, barrier, after)
            case ListBarriers():
                now_s = self._now_s()
                names = sorted(self._groups)
                envelope.reply(tuple([self._groups[name].view(now_s) for name in names]))
            case FeedTicks(ticks):
                envelope.reply(self.feed(ticks))
            case NewestTick(tick):
                self._look_ahead(tick)
            case SweepBarriers():
                self._look_round()
            case message:
                assert_never(message)

    def _look_ahead(self, tick: TimeTick) -> None:
        """Now it is known which ticks there can be: also answer those who came before."""
        self._horizon = max(self._horizon, tick)
        if self._horizon:
            early, self._early = self._early, []
            for envelope in early:
                self._answer(envelope)

    def _join(self, join: Join) -> Joined:
        self._check_join(join)
        if sum(map(len, self._groups.values())) >= PEERS_MAX:
            raise Refused(StreamingCode.INNER, f"there are {PEERS_MAX} peers already")
        lease = PeerLease(self._context.random.getrandbits(62), join.lease_s, self._now_s())
        group = self._groups.get(join.barrier)
        if group is None:
            if len(self._groups) >= BARRIERS_MAX:
                raise Refused(StreamingCode.INNER, f"there are {BARRIERS_MAX} barriers already")
            interval = tso.compose(join.interval_ms, 0)
            group = Group(join.barrier, join.kind, interval, {join.peer: lease})
            self._groups[join.barrier] = group
        elif group.kind is not join.kind:
            raise invalid_argument(
                f"barrier {join.barrier!r} is {group.kind.name}, not {join.kind.name}"
            )
        else:
            group.join(join.peer, lease)
        return Joined(lease.id, lease.lease_s, group.passed)

    def _check_join(self, join: Join) -> None:
        for name in (join.barrier, join.peer):
            if not 0 < len(name) <= NAME_LENGTH_MAX:
                raise invalid_argument(f"a name must have 1 to {NAME_LENGTH_MAX} characters")
        if join.barrier == CLUSTER_BARRIER:
            cause = f"the peers of {CLUSTER_BARRIER!r} are the pchannels; choose another name"
            raise Refused(StreamingCode.RESOURCE_ACQUIRED, cause)
        if join.kind not in self.kinds:
            raise invalid_argument(f"{join.kind.name} barriers are not kept here")
        if not LEASE_S_MIN <= join.lease_s <= LEASE_S_MAX:
            raise invalid_argument(
                f"a lease of {join.lease_s} s; it must be {LEASE_S_MIN} to {LEASE_S_MAX} s"
            )
        if not 0 <= join.interval_ms <= INTERVAL_MS_MAX:
            raise invalid_argument(
                f"an interval of {join.interval_ms} ms; it must be 0 to {INTERVAL_MS_MAX}"
            )

    def _report(self, report: ReportTick) -> Reported:
        group = self._member_of(report.barrier, report.peer, report.lease_id)
        self._check_tick(report.tick)
        group.hear(report.peer, self._now_s())
        if report.tick == 0:
            return Reported(group.passed, late=False)
        verdict = group.report(report.peer, report.tick)
        self._tell(group)
        return Reported(group.passed, late=verdict is ReportVerdict.LATE)

    def _leave(self, leave: LeaveBarrier) -> None:
        try:
            group = self._member_of(leave.barrier, leave.peer, leave.lease_id)
        except Refused:
            return  # gone already, or somebody else's place by now
        group.leave(leave.peer, self._now_s())
        self._tell(group)

    def _member_of(self, barrier: str, peer: str, lease_id: int) -> Group:
        group = self._groups.get(barrier)
        if group is None:
            cause = f"there is no barrier {barrier!r} here (any more); join again"
            raise Refused(StreamingCode.INVALID_REQUEST_SEQ, cause)
        group.check(peer, lease_id)
        return group

    def _check_tick(self, tick: TimeTick) -> None:
        """One report of a tick that never comes would hold up a hard barrier for ever."""
        if tick == 0:
            return
        if self._horizon == 0:
            cause = "it is not known yet how far the pchannels are, and many wait; try again"
            raise Refused(StreamingCode.INNER, cause)
        latest = self._horizon + tso.compose(AHEAD_MS_MAX, 0)
        if not 0 < tick <= latest:
            raise invalid_argument(
                f"tick {tick} lies ahead of every pchannel; they are at {self._horizon}"
            )

    def _watch(self, envelope: Asked, barrier: str, after: TimeTick) -> None:
        now_s = self._now_s()
        group = self._groups.get(barrier)
        news = None if group is None else group.after(after, now_s)
        if news is not None:
            envelope.reply(news)
        else:
            self._watchers.keep(envelope, barrier, after, now_s)

    def _tell(self, group: Group) -> None:
        now_s = self._now_s()
        self._watchers.tell(group.name, lambda after: group.after(after, now_s))

    def _look_round(self) -> None:
        now_s = self._now_s()
        for group in list(self._groups.values()):
            began = group.passed != 0 or group.name != CLUSTER_BARRIER
            removed = group.remove_overdue(now_s)
            if removed:
                self._removals += len(removed)
                level = logging.WARNING if began else logging.INFO  # at a start they are only late
                log.log(level, "barrier %s goes on without %s", group.name, _shown(removed))
                self._tell(group)
            if group.idle_since_s is not None and now_s - group.idle_since_s > FORGET_S:
                del self._groups[group.name]
        self._watchers.let_go(now_s)

    def _now_s(self) -> float:
        return self._context.clock.monotonic_s()


def _shown(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_MAX
    return ", ".join(names[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
