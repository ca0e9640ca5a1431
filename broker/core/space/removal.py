"""What of a log may be removed, who holds back the rest, and who is passed.

Retention alone wants to remove a prefix of the sealed segments. Each hold keeps the segments from
the first one that it needs. A holder beyond its limits keeps nothing; if what it needed is removed,
it is passed. One beyond its limits that another hold protects loses nothing and is not passed.

Why a limit counts what is held back and not how far a holder is behind: within retention a slow
reader costs nothing, and the disk holds at most what retention keeps plus the largest limit.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from broker.model.ids import TICK_LOGICAL_BITS, MessageId, TimeTick
from broker.model.retention.holders import (
    Hold,
    Holding,
    PassCause,
    Passed,
    Removal,
)
from broker.model.retention.policy import (
    Retention,
    SealedSegment,
)


def removal(
    due: Sequence[SealedSegment],
    first_id: MessageId,
    holds: Iterable[Hold],
    now_ms: int,
    unasked_bytes: int | None = None,
) -> Removal:
    """What to remove of the segments that are `due`, the oldest of a log that starts at `first_id`.

    Only the `from_id` of a hold counts: see `needed_from` for its tick. `unasked_bytes`: not all
    holders are known, so that as much is kept for them, and what exceeds it is removed anyway.
    """
    ends = [it.next_id for it in due]
    sums = [0, *accumulate(it.size_bytes for it in due)]
    free = len(due)
    if unasked_bytes is not None:
        # The oldest, until what is left of the due segments fits.
        free = next(at for at, gone in enumerate(sums) if sums[-1] - gone <= unasked_bytes)
    holders, beyond = list[Holding](), list[tuple[int, Holding, PassCause]]()
    for hold in holds:
        # A segment that ends at or below `from_id` has nothing for the holder.
        at = bisect_right(ends, hold.from_id)
        holding = Holding(hold.kind, hold.name, sums[-1] - sums[at], hold.bytes_max, hold.until_ms)
        if not holding.bytes:
            continue
        cause = exceeded(holding, now_ms)
        if cause is None:
            free = min(free, at)
            holders.append(holding)
        else:
            beyond.append((at, holding, cause))
    tick = due[free - 1].last_tick if free else TimeTick(0)
    return Removal(
        ends[free - 1] if free else first_id,
        tick,
        sums[free],
        tuple(sorted(holders, key=lambda it: (-it.bytes, it.kind, it.name))),
        tuple(_passed(it, cause, tick, now_ms) for at, it, cause in beyond if at < free),
    )


def expired(
    segments: Sequence[SealedSegment], active_bytes: int, retention: Retention, now_ms: int
) -> int:
    """How many of the sealed segments, oldest first, retention wants to remove.

    Only from the front: a gap in the middle would be damage.
    """
    if retention.keeps_all:
        return 0
    left_bytes = active_bytes + sum([it.size_bytes for it in segments])
    for count, segment in enumerate(segments):
        age_ms = now_ms - (segment.last_tick >> TICK_LOGICAL_BITS)
        too_old = 0 < retention.age_ms_max < age_ms
        too_big = 0 < retention.bytes_max < left_bytes
        if not (too_old or too_big):
            return count
        left_bytes -= segment.size_bytes
    return len(segments)


def exceeded(holding: Holding, now_ms: int) -> PassCause | None:
    """Which of its limits the holder exceeds; None: it holds."""
    if holding.until_ms is not None and now_ms >= holding.until_ms:
        return PassCause.TIME
    if holding.bytes_max is not None and holding.bytes > holding.bytes_max:
        return PassCause.BYTES
    return None


def _passed(holding: Holding, cause: PassCause, tick: TimeTick, now_ms: int) -> Passed:
    limit = holding.until_ms if cause is PassCause.TIME else holding.bytes_max
    assert limit is not None, holding
    return Passed(holding.kind, holding.name, cause, holding.bytes, limit, tick, now_ms)
