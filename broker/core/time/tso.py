"""The timestamp oracle: hybrid ticks that are never issued twice, across restarts and clock steps.

A hybrid logical clock (Kulkarni et al., 2014) with a durable window, as in the oracles of TiKV and
Milvus:
* a tick is `physical_ms << 18 | logical`; the physical part never goes back, though clocks may;
* every issued tick has a physical part below `bound_ms`, which was made durable before;
* a new holder starts above the last durable bound: at most one window is skipped, nothing repeats;
* when the logical part is used up, a millisecond is borrowed from the future;
* behind a clock that stepped back, time goes on at half speed until the clock has caught up, as
  Google's leap smear does: what is due by ticks, such as the end of an idle transaction, comes late
  but does not wait for the clock.

A caller may refuse ticks that are too far ahead of the clock: programs that take timestamps in huge
batches must not move time for everybody.

Pure: a reservation that needs a larger window returns the bound to save first. There is no result
"wait": borrowing is bounded by the window, and a clock that stepped back must not stop the broker.

Next: broker/node/state/tick_cache.py
"""

from dataclasses import dataclass, replace
from typing import Final

from broker.model.ids import TICK_LOGICAL_BITS, TICK_LOGICAL_MAX, TimeTick

WINDOW_MS = 3_000
"""How far ahead a bound is saved. A save happens about every half of it; a restart skips at most
this much."""

GUARD_MS = 1
"""A new holder starts this far above the old bound."""

COUNT_MAX = 65_536
"""The most ticks of one reservation; four such reservations fit into a millisecond."""


SMEAR: Final = 0.5
"""How fast time goes on behind a clock that stepped back."""


@dataclass(frozen=True, slots=True)
class SmearedTime:
    """The Unix millisecond that ticks go by, as it was at `since_s` of the monotonic clock."""

    ms: float
    since_s: float

    def at(self, wall_ms: int, monotonic_s: float) -> "SmearedTime":
        """The same later, when the clock shows `wall_ms`. It never goes back."""
        passed_ms = (monotonic_s - self.since_s) * 1000
        return SmearedTime(max(wall_ms, self.ms + passed_ms * SMEAR), monotonic_s)


@dataclass(frozen=True, slots=True)
class HybridClock:
    """The newest millisecond issued, its next logical value, and the durable bound (exclusive)."""

    physical_ms: int
    next_logical: int
    bound_ms: int


@dataclass(frozen=True, slots=True)
class ReservedTicks:
    """`first`, `first + 1`, … belong to the caller; `after` is the new state."""

    after: HybridClock
    first: TimeTick


@dataclass(frozen=True, slots=True)
class SaveFirst:
    """Nothing was issued: make `bound_ms` durable, call `granted`, then `reserve` again."""

    bound_ms: int


@dataclass(frozen=True, slots=True)
class TooFarAhead:
    """Nothing was issued: the next tick is this many milliseconds ahead of the time."""

    ahead_ms: int


def started(saved_ms: int, bound_ms: int) -> HybridClock:
    """The state of a new holder whose `bound_ms` is durable.

    `saved_ms` is the bound that was durable before; 0 for none.
    """
    assert bound_ms > saved_ms + GUARD_MS, (saved_ms, bound_ms)
    return HybridClock(physical_ms=saved_ms + GUARD_MS, next_logical=0, bound_ms=bound_ms)


def first_bound(saved_ms: int, now_ms: int) -> int:
    """The bound that a new holder saves before it serves."""
    return max(now_ms, saved_ms + GUARD_MS) + WINDOW_MS


def granted(hybrid: HybridClock, saved_ms: int, bound_ms: int) -> HybridClock:
    """The state after `bound_ms` has replaced `saved_ms` durably.

    If somebody else saved `saved_ms` in the meantime, the rest of the old window is discarded.
    """
    if saved_ms == hybrid.bound_ms:
        return replace(hybrid, bound_ms=max(bound_ms, hybrid.bound_ms))
    assert saved_ms > hybrid.bound_ms, (saved_ms, hybrid.bound_ms)
    return started(saved_ms, bound_ms)


def reserve(hybrid: HybridClock, count: int, now_ms: int) -> ReservedTicks | SaveFirst:
    """Reserve `count` contiguous ticks, 1 <= count <= COUNT_MAX, at `now_ms` or soon above it."""
    physical_ms, logical = _place(hybrid, count, now_ms)
    if physical_ms >= hybrid.bound_ms:
        return SaveFirst(physical_ms + WINDOW_MS)
    return ReservedTicks(
        after=replace(hybrid, physical_ms=physical_ms, next_logical=logical + count),
        first=compose(physical_ms, logical),
    )


def reserve_near(
    hybrid: HybridClock, count: int, now_ms: int, ahead_ms_max: int
) -> ReservedTicks | SaveFirst | TooFarAhead:
    """As `reserve`, but nothing that is more than `ahead_ms_max` ahead of `now_ms`."""
    physical_ms, _ = _place(hybrid, count, now_ms)
    if physical_ms - now_ms > ahead_ms_max:
        return TooFarAhead(physical_ms - now_ms)
    return reserve(hybrid, count, now_ms)


def _place(hybrid: HybridClock, count: int, now_ms: int) -> tuple[int, int]:
    """Millisecond and logical value of the first of the next `count` ticks."""
    assert 1 <= count <= COUNT_MAX, count
    if now_ms > hybrid.physical_ms:
        return now_ms, 0
    # One reservation lies within a millisecond, so that its ticks are contiguous.
    if hybrid.next_logical + count - 1 > TICK_LOGICAL_MAX:
        return hybrid.physical_ms + 1, 0
    return hybrid.physical_ms, hybrid.next_logical


def bound_due(hybrid: HybridClock, now_ms: int) -> int | None:
    """The bound to save now, ahead of time; None while more than half of the window is left."""
    ahead_ms = max(now_ms, hybrid.physical_ms)
    if hybrid.bound_ms - ahead_ms > WINDOW_MS // 2:
        return None
    return ahead_ms + WINDOW_MS


def compose(physical_ms: int, logical: int) -> TimeTick:
    """The tick of a Unix millisecond and a logical value."""
    return TimeTick((physical_ms << TICK_LOGICAL_BITS) + logical)


def physical_ms_of(tick: TimeTick) -> int:
    """Unix milliseconds of a tick."""
    return tick >> TICK_LOGICAL_BITS
