"""Barriers: combine the time ticks that several peers report into ticks that hold for all of them.

Three rules, over a set of peers that may change:
* soft: the minimum of the peers' newest ticks (a low watermark), at least an interval apart;
* hard: exactly the ticks that every peer has reported, one by one;
* hard minimum: as soft, without the interval, and without skipping a minimum.

These are the message stream barriers of early Milvus, with fixes: nothing passes while some peer
has reported nothing (the minimum was 0); a minimum that falls because a peer joined is held back;
all three drop regressions; the soft rule keeps the newest tick only, instead of a queue that a slow
reader would fill; the hard rule keeps a limited number of ticks of each peer that is ahead.
"""

from collections import Counter, deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import Protocol

from broker.model.ids import TimeTick

NO_TICK = TimeTick(0)
AHEAD_MAX = 1024
"""Ticks of one peer that may wait for the other peers; beyond it the oldest is skipped."""


class ReportVerdict(Enum):
    """The outcome of a report."""

    TAKEN = auto()
    LATE = auto()
    """Dropped: not above the peer's previous report, or not above a tick that has passed."""
    UNKNOWN = auto()
    """Dropped: the sender is not a peer."""


class Barrier(Protocol):
    """The interface of the three rules. After `join`, `report` or `leave`, `take` passed ticks."""

    @property
    def passed(self) -> TimeTick:
        """The newest tick that passed, taken or not; 0 for none. Monotonic."""
        ...

    def join(self, peer: str) -> None:
        """Add a peer; nothing passes until it has reported. An existing peer starts anew."""
        ...

    def report(self, peer: str, tick: TimeTick) -> ReportVerdict:
        """The peer has reached `tick`."""
        ...

    def leave(self, peer: str) -> None:
        """Remove a peer; the others continue without it. No-op for an unknown peer."""
        ...

    def take(self) -> tuple[TimeTick, ...]:
        """The ticks that passed since the last call, in order."""
        ...

    def newest(self, peer: str) -> TimeTick:
        """The newest tick accepted from a peer; 0 for none. KeyError for an unknown peer."""
        ...

    def waits_for(self) -> tuple[str, ...]:
        """The peers whose next report is needed for the next tick; empty without peers."""
        ...


class SoftMinimum:
    """The low watermark: no peer will report a tick up to `passed` any more.

    `interval`: the minimum distance of two ticks that are taken. `passed`: of the three rules, what
    an earlier barrier of these peers has passed; only larger ticks pass.
    """

    def __init__(self, peers: Iterable[str], interval: int, *, passed: TimeTick = NO_TICK) -> None:
        self._last = _founders(peers)
        self._interval = interval
        self._taken = passed
        self._pending = NO_TICK

    @property
    def passed(self) -> TimeTick:
        return max(self._pending, self._taken)

    def join(self, peer: str) -> None:
        self._last[peer] = NO_TICK

    def report(self, peer: str, tick: TimeTick) -> ReportVerdict:
        verdict = _raise(self._last, peer, tick)
        self._look()
        return verdict

    def leave(self, peer: str) -> None:
        # The peer that leaves may have been the one that all others waited for.
        self._last.pop(peer, None)
        self._look()

    def take(self) -> tuple[TimeTick, ...]:
        """The newest tick only, and no tick twice."""
        if self._pending <= self._taken:
            return ()
        self._taken = self._pending
        return (self._taken,)

    def newest(self, peer: str) -> TimeTick:
        return self._last[peer]

    def waits_for(self) -> tuple[str, ...]:
        return _at_minimum(self._last)

    def _look(self) -> None:
        lowest = min(self._last.values(), default=NO_TICK)
        if lowest <= self.passed:
            return
        # The first tick has nothing to keep a distance from.
        if not self._taken or lowest - self._taken >= self._interval:
            self._pending = lowest


class HardMinimum:
    """Passes each new minimum: every peer has reported a tick that is not below it.

    `ahead` counts reports of peers that were already ahead of the others.
    """

    def __init__(self, peers: Iterable[str], *, passed: TimeTick = NO_TICK) -> None:
        self._last = _founders(peers)
        self._passed = passed
        self._pending: list[TimeTick] = []
        self.ahead = 0

    @property
    def passed(self) -> TimeTick:
        return self._passed

    def join(self, peer: str) -> None:
        self._last[peer] = NO_TICK

    def report(self, peer: str, tick: TimeTick) -> ReportVerdict:
        was_ahead = self._last.get(peer, NO_TICK) > self._passed
        verdict = _raise(self._last, peer, tick)
        self.ahead += was_ahead and verdict is ReportVerdict.TAKEN
        self._look()
        return verdict

    def leave(self, peer: str) -> None:
        self._last.pop(peer, None)
        self._look()

    def take(self) -> tuple[TimeTick, ...]:
        taken, self._pending = tuple(self._pending), []
        return taken

    def newest(self, peer: str) -> TimeTick:
        return self._last[peer]

    def waits_for(self) -> tuple[str, ...]:
        return _at_minimum(self._last)

    def _look(self) -> None:
        lowest = min(self._last.values(), default=NO_TICK)
        if lowest > self._passed:
            self._passed = lowest
            self._pending.append(lowest)


class HardList:
    """Passes exactly the ticks that every peer has reported.

    A tick that some peer left out does not pass; `skipped` counts such ticks for each peer that
    reported them. All peers have reached every tick that passes.
    """

    def __init__(
        self, peers: Iterable[str], ahead_max: int = AHEAD_MAX, *, passed: TimeTick = NO_TICK
    ) -> None:
        self._last = _founders(peers)
        self._waiting: dict[str, deque[TimeTick]] = {peer: deque() for peer in self._last}
        self._passed = passed
        self._pending: list[TimeTick] = []
        self._ahead_max = ahead_max
        self.skipped: Counter[str] = Counter()

    @property
    def passed(self) -> TimeTick:
        return self._passed

    def join(self, peer: str) -> None:
        self._last[peer] = NO_TICK
        self._waiting[peer] = deque()

    def report(self, peer: str, tick: TimeTick) -> ReportVerdict:
        # A peer that joined again has no previous tick, but what has passed cannot be taken back.
        if peer in self._last and tick <= self._passed:
            return ReportVerdict.LATE
        verdict = _raise(self._last, peer, tick)
        if verdict is ReportVerdict.TAKEN:
            self._waiting[peer].append(tick)
            if len(self._waiting[peer]) > self._ahead_max:
                self._skip(peer)
            self._look()
        return verdict

    def leave(self, peer: str) -> None:
        self._last.pop(peer, None)
        self._waiting.pop(peer, None)
        self.skipped.pop(peer, None)
        self._look()

    def take(self) -> tuple[TimeTick, ...]:
        taken, self._pending = tuple(self._pending), []
        return taken

    def newest(self, peer: str) -> TimeTick:
        return self._last[peer]

    def waits_for(self) -> tuple[str, ...]:
        return tuple([peer for peer, ticks in self._waiting.items() if not ticks])

    def _look(self) -> None:
        """Pass ticks while every peer has one waiting; ticks below the largest head are skipped."""
        while self._waiting and all(self._waiting.values()):
            # Reports increase, so the peer with the largest head never reports a lower tick, and
            # the lower heads of the others can never pass.
            largest = max(ticks[0] for ticks in self._waiting.values())
            behind = [peer for peer, ticks in self._waiting.items() if ticks[0] < largest]
            for peer in behind:
                self._skip(peer)
            if not behind:
                for ticks in self._waiting.values():
                    ticks.popleft()
                self._passed = largest
                self._pending.append(largest)

    def _skip(self, peer: str) -> None:
        self._waiting[peer].popleft()
        self.skipped[peer] += 1


def _founders(peers: Iterable[str]) -> dict[str, TimeTick]:
    """The first peers, without repeats. ValueError without a peer: no tick could ever pass."""
    last = dict.fromkeys(peers, NO_TICK)
    if not last:
        raise ValueError("a barrier needs at least one peer")
    return last


def _raise(last: dict[str, TimeTick], peer: str, tick: TimeTick) -> ReportVerdict:
    if peer not in last:
        return ReportVerdict.UNKNOWN
    if tick <= last[peer]:
        return ReportVerdict.LATE
    last[peer] = tick
    return ReportVerdict.TAKEN


def _at_minimum(last: dict[str, TimeTick]) -> tuple[str, ...]:
    lowest = min(last.values(), default=NO_TICK)
    return tuple([peer for peer, tick in last.items() if tick == lowest])
