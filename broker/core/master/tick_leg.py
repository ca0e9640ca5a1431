"""One leg of the time tick producer of early Milvus: reports in, ticks to send out, in order.

Its peers are given, not found: nothing passes before each of them has reported, also after a
restart, when all reports are unknown again. What an earlier incarnation may have sent is the floor;
only larger ticks pass.
"""

from collections import deque
from typing import assert_never

from broker.core.naming import PCHANNEL_NAME_LENGTH_MAX, pchannel_of
from broker.core.time import tso
from broker.core.time.barrier import (
    NO_TICK,
    Barrier,
    HardList,
    HardMinimum,
    ReportVerdict,
    SoftMinimum,
)
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import PChannelName, TimeTick
from broker.model.master.time_ticks import TickOrigin, TickPolicy, TickReport, TickSettings

PEERS_MAX = 64
"""Fits one write of the metadata, which names each proxy."""
CHANNELS_MAX = 1024
WAITING_MAX = 1024
"""Ticks that passed a hard barrier and wait to be sent; then reports are refused."""
INTERVAL_MS_DEFAULT = 500
INTERVAL_MS_MAX = 3_600_000
AHEAD_MS_MAX = 10_000
"""How far a report may be ahead of the clock: one of the far future would block a hard barrier."""
CHANNEL_NAME_LENGTH_MAX = 2 * PCHANNEL_NAME_LENGTH_MAX
ID_MAX = 2**63 - 1

POLICIES = {
    TickOrigin.PROXIES: (TickPolicy.SOFT,),
    TickOrigin.WRITE_NODES: (TickPolicy.LIST, TickPolicy.MINIMUM),
}
"""The default first."""


class TickLeg:
    """The barrier of one origin and the ticks that are to be sent. Not reused after a change."""

    def __init__(self, settings: TickSettings, floor: TimeTick) -> None:
        self.settings = settings
        self._rule = _barrier(settings, floor)
        self._due: deque[TimeTick] = deque()
        self._floor = floor
        self.sent = NO_TICK

    @property
    def passed(self) -> TimeTick:
        """The newest tick that passed, also before this incarnation; 0 for none."""
        return max(self._rule.passed, self._floor)

    @property
    def waiting(self) -> int:
        """Ticks that passed and are not sent."""
        self._collect()
        return len(self._due)

    @property
    def skipped(self) -> int:
        """Ticks that never pass because some peer left them out."""
        rule = self._rule
        return sum(rule.skipped.values()) if isinstance(rule, HardList) else 0

    def report(self, peer: int, tick: TimeTick, now_ms: int) -> ReportVerdict:
        """A peer has reached `tick`. Raises Refused for one that is no peer, and for a bad tick."""
        if peer not in self.settings.peers:
            raise Refused(
                StreamingCode.CHANNEL_NOT_EXIST,
                f"{peer} is not one of those that report ticks:"
                f" {', '.join(map(str, self.settings.peers))}; set the time ticks with it first",
            )
        latest = max(tso.compose(now_ms, 0), *map(self._newest, self.settings.peers))
        if not 0 < tick <= latest + tso.compose(AHEAD_MS_MAX, 0):
            raise invalid_argument(
                f"tick {tick} is not between 1 and {AHEAD_MS_MAX} ms ahead of the coordinator's"
                " clock; report a timestamp that the master gave out"
            )
        if self.waiting >= WAITING_MAX:
            cause = f"{WAITING_MAX} ticks wait to be sent to the channels; try again later"
            raise Refused(StreamingCode.INNER, cause)
        return self._rule.report(str(peer), tick)

    def next(self) -> TimeTick | None:
        """The tick to send now, the same until it is sent; of a soft barrier always the newest."""
        self._collect()
        return self._due[0] if self._due else None

    def sent_everywhere(self, tick: TimeTick) -> None:
        """Every channel has the tick."""
        self.sent = max(self.sent, tick)
        while self._due and self._due[0] <= tick:
            self._due.popleft()

    def reports(self) -> tuple[TickReport, ...]:
        """What each peer has reported."""
        return tuple([TickReport(peer, self._newest(peer)) for peer in self.settings.peers])

    def waits_for(self) -> tuple[int, ...]:
        """The peers whose next report is needed for the next tick."""
        return tuple([int(peer) for peer in self._rule.waits_for()])

    def changed_to(self, settings: TickSettings) -> "TickLeg":
        """The leg under new settings; this one is not used any more.

        A peer that stays need not report again unless the rule changes; one that is new holds
        everything up until it has reported.
        """
        before = self.settings
        same_rule = (before.policy, before.interval_ms) == (settings.policy, settings.interval_ms)
        if not same_rule:
            return TickLeg(settings, self.passed)
        # Joined first: a barrier that loses its last old peer must not pass for want of any.
        for peer in settings.peers:
            if peer not in before.peers:
                self._rule.join(str(peer))
        for peer in before.peers:
            if peer not in settings.peers:
                self._rule.leave(str(peer))
        self.settings = settings
        return self

    def _newest(self, peer: int) -> TimeTick:
        return self._rule.newest(str(peer))

    def _collect(self) -> None:
        taken = self._rule.take()
        if taken and self.settings.policy is TickPolicy.SOFT:
            # A reader may skip ticks: one that is still being sent gives way to a newer one.
            self._due.clear()
        self._due.extend(taken)


def checked(
    origin: TickOrigin, settings: TickSettings, pchannels: frozenset[PChannelName]
) -> TickSettings:
    """The settings with their defaults; duplicates are dropped. Raises Refused for bad ones."""
    peers, channels = tuple(dict.fromkeys(settings.peers)), tuple(dict.fromkeys(settings.channels))
    if not 1 <= len(peers) <= PEERS_MAX:
        raise invalid_argument(f"{len(peers)} peers report ticks; there must be 1 to {PEERS_MAX}")
    if not 1 <= len(channels) <= CHANNELS_MAX:
        cause = f"{len(channels)} channels get the ticks; there must be 1 to {CHANNELS_MAX}"
        raise invalid_argument(cause)
    for peer in peers:
        if not 1 <= peer <= ID_MAX:
            raise invalid_argument(f"peer ID {peer} must be 1 to {ID_MAX}")
    for channel in channels:
        _check_channel(channel, pchannels)
    if settings.policy not in POLICIES[origin]:
        allowed = " or ".join(it.name for it in POLICIES[origin])
        raise invalid_argument(
            f"ticks of {origin.name} cannot pass by the rule {settings.policy.name}; use {allowed}"
        )
    if not 0 <= settings.interval_ms <= INTERVAL_MS_MAX:
        raise invalid_argument(
            f"an interval of {settings.interval_ms} ms; it must be 0 to {INTERVAL_MS_MAX}"
        )
    interval_ms = settings.interval_ms or INTERVAL_MS_DEFAULT
    soft = settings.policy is TickPolicy.SOFT
    return TickSettings(peers, channels, settings.policy, interval_ms if soft else 0)


def _check_channel(channel: str, pchannels: frozenset[PChannelName]) -> None:
    if len(channel) > CHANNEL_NAME_LENGTH_MAX or pchannel_of(channel) not in pchannels:
        raise Refused(
            StreamingCode.CHANNEL_NOT_EXIST,
            f"{channel[:CHANNEL_NAME_LENGTH_MAX]!r} is no channel of this cluster; name one of its"
            " pchannels, or a vchannel on one",
        )


def _barrier(settings: TickSettings, floor: TimeTick) -> Barrier:
    peers = [str(peer) for peer in settings.peers]
    match settings.policy:
        case TickPolicy.SOFT:
            return SoftMinimum(peers, tso.compose(settings.interval_ms, 0), passed=floor)
        case TickPolicy.LIST:
            return HardList(peers, passed=floor)
        case TickPolicy.MINIMUM:
            return HardMinimum(peers, passed=floor)
        case _:
            assert_never(settings.policy)
