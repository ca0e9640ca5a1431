"""When many peers report time ticks: which tick may be passed on for all of them.

Owns the three rules of message streams, over a set of peers that changes:
* soft: the smallest of the peers' newest ticks, at least an interval above the last one taken;
* hard: the ticks that every single peer has reported, one by one;
* hard minimum: as soft, without the interval and without leaving out any.

Pure: who is silent is judged in `peers.py`, and whoever calls hands the passed ticks on.

What is different from the rules as they were first written down, and why: nothing is passed while
a peer has reported nothing (it would be 0); a minimum that falls because somebody joined is held
back; regressions are dropped by all three; the soft rule keeps one newest tick instead of a queue
that a slow reader would fill, and the hard one keeps a limited number for each peer that is ahead.
Next: broker/core/time/barrier_peers.py
"""

from collections import Counter, deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import Protocol

from broker.model.ids import TimeTick

NO_TICK = TimeTick(0)
AHEAD_MAX = 1024
"""Ticks of one peer that may wait for the others; then the oldest is skipped."""


class ReportVerdict(Enum):
    """What became of a report."""

    TAKEN = auto()
    LATE = auto()
    """Not above what the peer reported before, or what was passed already: dropped."""
    UNKNOWN = auto()
    """Not from a peer: dropped."""


class Barrier(Protocol):
    """What the three rules share. `join`, `report` and `leave` may make ticks pass: `take` them."""

    @property
    def passed(self) -> TimeTick:
        """The newest tick that passed, taken or not; 0 for none. It never falls."""
        ...

    def join(self, peer: str) -> None:
        """Nothing passes any more before this peer has reported; one that was there starts anew."""
        ...

    def report(self, peer: str, tick: TimeTick) -> ReportVerdict:
        """The peer has come to `tick`."""
        ...

    def leave(self, peer: str) -> None:
        """The others go on without it; nothing happens when it is no peer."""
        ...

    def take(self) -> tuple[TimeTick, ...]:
        """What passed since the last call, in order."""
        ...

    def newest(self, peer: str) -> TimeTick:
        """The newest tick taken from a peer that is there; 0 for none."""
        ...

    def waits_for(self) -> tuple[str, ...]:
        """The peers whose next report is needed for the next tick; empty when nobody is there."""
        ...


class SoftMinimum:
    """Nothing up to `passed` is still to come from any peer.

    `interval`: two ticks taken one after the other are at least so far apart.
    """

    def __init__(self, peers: Iterable[str], interval: int) -> None:
        self._last = _founders(peers)
        self._interval = interval
        self._taken = NO_TICK
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
        self._last.pop(peer, None)
        self._look()

    def take(self) -> tuple[TimeTick, ...]:
        """The newest only, and none twice."""
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
        if not self._taken or lowest - self._taken >= self._interval:
            self._pending = lowest


class HardMinimum:
    """Every peer has reported a tick that is not below any that passed.

    `ahead` counts reports of peers that others have not caught up with.
    """

    def __init__(self, peers: Iterable[str]) -> None:
        self._last = _founders(peers)
        self._passed = NO_TICK
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
    """Every peer has reported exactly the ticks that pass.

    A tick that a peer left out passes for nobody: `skipped` counts, for each peer that did report
    such ticks, how many of its were dropped. What passes is true all the same: everybody is there.
    """

    def __init__(self, peers: Iterable[str], ahead_max: int = AHEAD_MAX) -> None:
        self._last = _founders(peers)
        self._waiting: dict[str, deque[TimeTick]] = {peer: deque() for peer in self._last}
        self._passed = NO_TICK
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
        """As long as every peer has something waiting, the largest of the first ones decides."""
        while self._waiting and all(self._waiting.values()):
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
    """A set, whatever is repeated. ValueError without a single peer: it could never pass a tick."""
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
