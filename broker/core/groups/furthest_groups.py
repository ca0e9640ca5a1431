"""Which groups count as holders of a log: of thousands those that decide what may be removed.

All groups have the same limit, so whoever is further behind holds back more: the one furthest
behind within the limit decides, and those beyond it are named as passed.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from broker.core.groups.group_state import GroupState
from broker.model.ids import TimeTick
from broker.model.retention.policy import SealedSegment

FURTHEST_MAX: Final = 64
"""Of each kind: each is looked up in the log. Several within the limit, because one that needs a
long transaction may be beyond it all the same."""


def furthest_behind(
    states: Iterable[GroupState], segments: Sequence[SealedSegment], bytes_max: int
) -> list[GroupState]:
    """Of groups beyond the limit, and of those within it, the ones that are furthest behind."""
    behind = sorted(states, key=lambda it: it.floor)
    within = bisect_left(behind, beyond_limit(segments, bytes_max), key=lambda it: it.floor)
    return [*behind[:within][:FURTHEST_MAX], *behind[within:][:FURTHEST_MAX]]


def beyond_limit(segments: Sequence[SealedSegment], bytes_max: int) -> TimeTick:
    """Whoever has read less than up to this tick holds back more than `bytes_max` of these."""
    left_bytes = sum([it.size_bytes for it in segments])
    tick = TimeTick(0)
    for segment in segments:
        if left_bytes <= bytes_max:
            break
        tick = segment.last_tick
        left_bytes -= segment.size_bytes
    return tick
