"""Keeps barriers by name: members, leases, reports, and the watchers of passed ticks.

Nothing is stored: after a restart peers have to join again, and a watcher never sees a tick
that is not above the last one it saw. A report under a lease that is not known here tells that the
barrier had peers before the start: it passes nothing until all of them have had time to join again.
"""

import logging
import math
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

SWEEP_S = 0.2
LEASE_S_MIN, LEASE_S_MAX = 0.5, 3600.0
INTERVAL_MS_MAX = 3_600_000
NAME_LENGTH_MAX = 255
BARRIERS_MAX = 1024
PEERS_MAX = 16_384
"""Over all barriers of one actor."""

SHOWN_MAX = 20
"""Names in one statistic; the list of barriers has all of them."""

EARLY_REPORTS_MAX = 1024
"""Reports that may wait, after a start, for the first closed tick of the pchannels."""

FORGET_S = 600.0
"""A barrier without peers for this long is removed."""

HOLD_S_MIN = 5.0
"""Shortest wait for earlier peers: a client needs 3 s to leave a coordinator that is silent."""

SERIES_BITS = 31
"""The upper bits of a lease's id say which start of the actor gave it out."""

AHEAD_MS_MAX = 10_000
"""How far a report may be ahead of the last polled tick, which may be a little old."""

log = logging.getLogger("broker.timesync")
Caller = Envelope[BarrierMessage]


class Barriers(Actor[BarrierMessage]):
    """The common part of SoftBarrier and HardBarrier. `kinds`: the kinds it keeps."""

    kinds: frozenset[BarrierKind]
    _context: Context[BarrierMessage]

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._watchers = Watchers()
        self._early_reports: list[Caller] = []
        self._horizon = TimeTick(0)
        self._removals = 0
        self._series = 0
        self._earlier: dict[str, float] = {}
        """Barriers that had peers before the start: when the first one was heard; -inf when the
        wait for them is over."""

    async def started(self, context: Context[BarrierMessage]) -> None:
        self._context = context
        self._series = context.random.getrandbits(SERIES_BITS)
        context.on_beat(SWEEP_S, SweepBarriers())

    async def receive(self, batch: Sequence[Caller]) -> None:
        for envelope in batch:
            self._answer(envelope)

    def statistics(self) -> Mapping[str, int | float | str]:
        """`silent`: as barrier/peer; `removed`: likewise, peers that have not come back."""
        now_s = self._now_s()
        views = [self._groups[name].view(now_s) for name in sorted(self._groups)]
        return {
            "barriers": len(views),
            "peers": sum(len(view.peers) for view in views),
            "ticks": _shown([f"{view.name} {view.tick}" for view in views]),
            "silent_peers": sum(len(view.silent) for view in views),
            "silent": _shown([f"{view.name}/{it}" for view in views for it in view.silent]),
            "removed": _shown([f"{view.name}/{it}" for view in views for it in view.removed]),
            "removals": self._removals,
            "watches": len(self._watchers),
        }

    def feed(self, ticks: Mapping[PChannelName, TimeTick]) -> TimeTick:
        """Handle FeedTicks. Only the SoftBarrier has a barrier for it."""
        raise Refused(StreamingCode.INVALID_ARGUMENT, "pchannels feed the soft barrier only")

    def _answer(self, envelope: Caller) -> None:
        try:
            self._handle(envelope)
        except Refused as refused:
            envelope.fail(refused)

    def _handle(self, envelope: Caller) -> None:
        match envelope.message:
            case Join() as join:
                envelope.reply(self._join(join))
            case ReportTick() as report:
                self._look_for_earlier(report)
                # Before the first poll nothing tells a tick of the future from a good one: the
                # report waits, so that peers are not refused at each start of the coordinator.
                if self._is_early(report) and len(self._early_reports) < EARLY_REPORTS_MAX:
                    self._early_reports.append(envelope)
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
                self._raise_horizon(tick)
            case SweepBarriers():
                self._sweep()
            case message:
                assert_never(message)

    def _raise_horizon(self, tick: TimeTick) -> None:
        """Raise the horizon; handle reports that came before there was one."""
        self._horizon = max(self._horizon, tick)
        if self._horizon:
            early, self._early_reports = self._early_reports, []
            for envelope in early:
                self._answer(envelope)

    def _join(self, join: Join) -> Joined:
        self._check_join(join)
        if sum(map(len, self._groups.values())) >= PEERS_MAX:
            raise Refused(StreamingCode.INNER, f"there are {PEERS_MAX} peers already; the limit")
        # A random id: leases that an earlier incarnation of this actor gave out are void here.
        lease_id = self._series << SERIES_BITS | self._context.random.getrandbits(SERIES_BITS)
        lease = PeerLease(lease_id, join.lease_s, self._now_s())
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
        self._hold_if_earlier(group)
        return Joined(lease.id, lease.lease_s, group.passed)

    def _is_early(self, report: ReportTick) -> bool:
        """Whether the report has to wait. It renews the lease before, and is refused without one.

        A peer of before the start has to join again now: it must not learn that from a late answer.
        """
        if report.tick == 0 or self._horizon:
            return False
        group = self._member_of(report.barrier, report.peer, report.lease_id)
        group.hear(report.peer, self._now_s())
        return True

    def _look_for_earlier(self, report: ReportTick) -> None:
        """Note the barrier of a peer that was a member before the start."""
        name, group = report.barrier, self._groups.get(report.barrier)
        known = group is not None and not group.is_stranger(report.peer)
        # A peer that has left, or a barrier that was forgotten, was not there before the start.
        ours = report.lease_id >> SERIES_BITS == self._series
        # Leases of this actor are not 0, and pchannels have none.
        if known or ours or not report.lease_id or name == CLUSTER_BARRIER:
            return
        if len(name) <= NAME_LENGTH_MAX and len(self._earlier) < BARRIERS_MAX:
            self._earlier.setdefault(name, self._now_s())
            if group is not None:
                self._hold_if_earlier(group)

    def _hold_if_earlier(self, group: Group) -> None:
        """Let nothing pass for a lease after the first peer of before the start was heard.

        Not after the start: peers may reach the server later. A peer that lives renews its lease
        within a part of it, so it is back by then. The peers of one barrier have much the same
        lease; the longest one that is known counts.
        """
        heard_s = self._earlier.get(group.name, -math.inf)
        until_s = heard_s + max(group.longest_lease_s, HOLD_S_MIN)
        left_s = until_s - self._now_s()
        if left_s > 0:
            if not group.held:
                cause = "peers of before the start may join again"
                log.info("barrier %s passes nothing for %.1f s: %s", group.name, left_s, cause)
            group.hold(until_s)

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
            return  # removed already, or replaced by a later peer of this name
        group.leave(leave.peer, self._now_s())
        self._tell(group)

    def _member_of(self, barrier: str, peer: str, lease_id: int) -> Group:
        group = self._groups.get(barrier)
        if group is None:
            cause = f"there is no barrier {barrier!r} (any more); join again"
            raise Refused(StreamingCode.INVALID_REQUEST_SEQ, cause)
        group.check(peer, lease_id)
        return group

    def _check_tick(self, tick: TimeTick) -> None:
        """Refuse a tick from the future: it would hold up a hard barrier for ever."""
        if tick == 0:
            return
        if self._horizon == 0:
            cause = "the closed tick of the pchannels is not known yet, and many wait; try again"
            raise Refused(StreamingCode.INNER, cause)
        latest = self._horizon + tso.compose(AHEAD_MS_MAX, 0)
        if not 0 < tick <= latest:
            raise invalid_argument(
                f"tick {tick} is ahead of every pchannel; the newest is at {self._horizon}"
            )

    def _watch(self, envelope: Caller, barrier: str, after: TimeTick) -> None:
        now_s = self._now_s()
        group = self._groups.get(barrier)
        news = None if group is None else group.after(after, now_s)
        if news is not None:
            envelope.reply(news)
        else:  # also for a barrier without a peer yet: watchers may come first
            self._watchers.keep(envelope, barrier, after, now_s)

    def _tell(self, group: Group) -> None:
        now_s = self._now_s()
        self._watchers.tell(group.name, lambda after: group.after(after, now_s))

    def _sweep(self) -> None:
        now_s = self._now_s()
        for group in list(self._groups.values()):
            began = group.passed != 0 or group.name != CLUSTER_BARRIER
            removed = group.remove_overdue(now_s)
            if removed:
                self._removals += len(removed)
                level = logging.WARNING if began else logging.INFO  # at a start they are only slow
                log.log(
                    level,
                    "barrier %s continues without %s",
                    group.name,
                    _shown(removed),
                )
                self._tell(group)
            if group.release(now_s):
                self._earlier[group.name] = -math.inf
                self._tell(group)
            if group.idle_since_s is not None and now_s - group.idle_since_s > FORGET_S:
                del self._groups[group.name]
        self._watchers.expire(now_s)

    def _now_s(self) -> float:
        return self._context.clock.monotonic_s()


def _shown(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_MAX
    return ", ".join(names[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
