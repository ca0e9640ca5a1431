"""One named barrier: its rule, its members with their leases, and the ticks that passed lately.

Has no clock: times are arguments.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import assert_never

from broker.core.time.barrier import Barrier, HardList, HardMinimum, ReportVerdict, SoftMinimum
from broker.core.time.barrier_peers import BarrierPeers, PeerLease
from broker.model.barrier import BarrierKind, BarrierPeer, BarrierView
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import TimeTick
from broker.timesync.messages import PassedTicks

HISTORY_MAX = 1024
"""Passed ticks that are kept for watchers; one that is further behind misses the oldest."""
ABSENT = ""
"""Stands for peers that may join again; no peer has an empty name."""
REMOVED_MAX = 64
"""Removed peers whose names are remembered."""


class Group:
    """See the module. `idle_since_s`: since when it has no peers; None while it has some."""

    def __init__(
        self, name: str, kind: BarrierKind, interval: int, founders: Mapping[str, PeerLease]
    ) -> None:
        """`interval`: in ticks, for a soft barrier. ValueError without founders."""
        self.name = name
        self.kind = kind
        self.idle_since_s: float | None = None
        self.removals = 0
        self._rule = rule_of(kind, founders, interval)
        self._peers = BarrierPeers()
        self._removed: dict[str, None] = {}
        self._held_until_s: float | None = None
        self._history: deque[TimeTick] = deque(maxlen=HISTORY_MAX)
        for peer, lease in founders.items():
            self._peers.join(peer, lease)

    @property
    def passed(self) -> TimeTick:
        """The newest tick that passed; 0 for none."""
        return self._history[-1] if self._history else TimeTick(0)

    def __len__(self) -> int:
        return len(self._peers)

    def __contains__(self, peer: str) -> bool:
        return peer in self._peers

    def newest(self, peer: str) -> TimeTick:
        """The newest tick that a member has reported."""
        return self._rule.newest(peer)

    def join(self, peer: str, lease: PeerLease) -> None:
        """Add a member, or start an existing one anew."""
        self._peers.join(peer, lease)
        self._rule.join(peer)
        self._removed.pop(peer, None)
        self.idle_since_s = None

    @property
    def held(self) -> bool:
        """Whether nothing passes now, because peers may join again; see `hold`."""
        return self._held_until_s is not None

    @property
    def longest_lease_s(self) -> float:
        """Of all members; 0 without any."""
        return self._peers.longest_lease_s

    def hold(self, until_s: float) -> None:
        """Pass nothing before `release` at this time, or later if it is held for longer already."""
        if self._held_until_s is None:
            # As for a peer that has joined and reported nothing.
            self._rule.join(ABSENT)
        self._held_until_s = max(until_s, self._held_until_s or until_s)

    def release(self, now_s: float) -> bool:
        """Pass what was held back when its time is over; whether it has been held until now."""
        if self._held_until_s is None or now_s < self._held_until_s:
            return False
        self._held_until_s = None
        self._rule.leave(ABSENT)
        self._collect()
        return True

    def is_stranger(self, peer: str) -> bool:
        """Whether the peer is no member, and was not removed lately either."""
        return peer not in self._peers and peer not in self._removed

    def check(self, peer: str, lease_id: int) -> None:
        """Raise Refused unless the peer is a member under this lease."""
        lease = self._peers.lease_of(peer)
        if lease is None:
            why = "was removed from" if peer in self._removed else "is no member of"
            cause = f"{peer!r} {why} barrier {self.name!r}; join again"
            raise Refused(StreamingCode.INVALID_REQUEST_SEQ, cause)
        if lease.id != lease_id:
            cause = f"another process joined barrier {self.name!r} as {peer!r}; use another name"
            raise Refused(StreamingCode.CHANNEL_FENCED, cause)

    def hear(self, peer: str, now_s: float) -> None:
        """Renew a member's lease."""
        self._peers.hear(peer, now_s)

    def report(self, peer: str, tick: TimeTick) -> ReportVerdict:
        """A member reports a tick."""
        verdict = self._rule.report(peer, tick)
        self._collect()
        return verdict

    def leave(self, peer: str, now_s: float) -> None:
        """Remove a member."""
        self._peers.leave(peer)
        self._rule.leave(peer)
        self._collect()
        if not self._peers:
            self.idle_since_s = now_s

    def remove_overdue(self, now_s: float) -> tuple[str, ...]:
        """Remove members whose lease is over; their names."""
        overdue = self._peers.overdue(now_s)
        for peer in overdue:
            self.leave(peer, now_s)
            self._removed[peer] = None
            self.removals += 1
        # A dict keeps the order of insertion: the first key is the oldest removal.
        while len(self._removed) > REMOVED_MAX:
            del self._removed[next(iter(self._removed))]
        return overdue

    def after(self, tick: TimeTick, now_s: float) -> PassedTicks | None:
        """What passed after `tick`; the newest alone for a soft barrier, and for `tick` 0."""
        if tick >= self.passed:
            return None
        if tick == 0 or self.kind is BarrierKind.SOFT:
            return PassedTicks((self.passed,), self.view(now_s))
        return PassedTicks(tuple([it for it in self._history if it > tick]), self.view(now_s))

    def view(self, now_s: float) -> BarrierView:
        """The barrier as people are shown it."""
        silent = set(self._peers.silent(now_s))
        return BarrierView(
            name=self.name,
            kind=self.kind,
            tick=self.passed,
            peers=tuple(
                [
                    BarrierPeer(name, self._rule.newest(name), name in silent)
                    for name in self._peers.names()
                ]
            ),
            waits_for=tuple([it for it in self._rule.waits_for() if it != ABSENT]),
            removed=tuple(self._removed),
        )

    def _collect(self) -> None:
        self._history.extend(self._rule.take())


def rule_of(kind: BarrierKind, founders: Iterable[str], interval: int) -> Barrier:
    """The rule of a kind; `interval` in ticks."""
    match kind:
        case BarrierKind.SOFT:
            return SoftMinimum(founders, interval)
        case BarrierKind.HARD:
            return HardList(founders)
        case BarrierKind.HARD_MINIMUM:
            return HardMinimum(founders)
        case _:
            assert_never(kind)
