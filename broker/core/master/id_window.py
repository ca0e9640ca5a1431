"""Ids that are never given out twice: a counter whose upper bound is durable before it is used.

A new holder starts at the durable bound, so what its predecessor had reserved and not used is lost
and nothing repeats. Ids are not taken from the clock: a large batch moves no time, and a clock that
jumps changes nothing.
"""

from dataclasses import dataclass, replace

COUNT_MAX = 65_536
"""The most ids of one request."""

FIRST_ID = 1_000_000
"""Smaller ids are those of collections that earlier releases counted."""

ID_MAX = 2**63 - 1
"""Ids are signed 64-bit numbers on the wire."""

WINDOW = 1 << 24
"""Ids reserved by one write: 256 of the largest requests. A restart skips at most this many."""


@dataclass(frozen=True, slots=True)
class IdWindow:
    """The next id to give out, and the durable bound (exclusive)."""

    next_id: int
    bound: int


@dataclass(frozen=True, slots=True)
class TakenIds:
    """`first`, `first + 1`, … belong to the caller; `after` is the new state."""

    after: IdWindow
    first: int


@dataclass(frozen=True, slots=True)
class ReserveFirst:
    """Nothing was given out: make `bound` durable, call `extended`, then `take` again."""

    bound: int


@dataclass(frozen=True, slots=True)
class UsedUp:
    """No id is left below ID_MAX for this request."""


def opened(saved: int, floor: int, bound: int = 0) -> IdWindow:
    """The window of a new holder. Its ids begin at the durable bound `saved` (0 for none).

    They are above `floor`. Without a `bound` above them, which is durable, nothing is reserved yet.
    """
    start = max(saved, FIRST_ID, floor + 1)
    return IdWindow(start, max(start, bound))


def extended(window: IdWindow, saved: int, bound: int) -> IdWindow:
    """The state after `bound` has replaced the durable bound `saved`.

    If another holder saved `saved` in the meantime, the rest of the old window is discarded: ids
    of one holder only grow, and those between the two bounds belong to the other holder.
    """
    if saved <= window.bound:
        return replace(window, bound=max(bound, window.bound))
    return opened(saved, 0, bound)


def take(window: IdWindow, count: int) -> TakenIds | ReserveFirst | UsedUp:
    """Take `count` consecutive ids, 1 <= count <= COUNT_MAX."""
    assert 1 <= count <= COUNT_MAX, count
    end = window.next_id + count
    if end > ID_MAX + 1:
        return UsedUp()
    if end > window.bound:
        return ReserveFirst(min(end + WINDOW, ID_MAX + 1))
    return TakenIds(IdWindow(end, window.bound), window.next_id)


def bound_due(window: IdWindow) -> int | None:
    """The bound to save now, ahead of need; None while more than half of the window is left."""
    wanted = min(window.next_id + WINDOW, ID_MAX + 1)
    if window.bound - window.next_id > WINDOW // 2 or wanted <= window.bound:
        return None
    return wanted
