"""A cached range of numbers, and which waiting requests it serves.

The rule of the cached allocators of early Milvus: the longest prefix of the waiting requests whose
counts fit. So nobody is overtaken, and a large request is not starved by small ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class CachedRange:
    """The numbers first, first + 1, … (`count` of them) that nobody has taken yet.

    `fetched_s`: when they were requested, on a monotonic clock.
    """

    first: int
    count: int
    fetched_s: float

    def take(self, count: int) -> "CachedRange":
        """What is left when the first `count` are taken, 0 < count <= self.count."""
        assert 0 < count <= self.count, (count, self.count)
        return replace(self, first=self.first + count, count=self.count - count)

    def too_old(self, now_s: float, age_s_max: float | None) -> bool:
        """Whether its numbers may not be given out any more; None: they do not age."""
        return age_s_max is not None and now_s - self.fetched_s >= age_s_max


EMPTY = CachedRange(0, 0, 0.0)


def prefix_that_fits(counts: Iterable[int], room: int) -> int:
    """How many requests, from the first on, have counts whose sum is at most `room`."""
    served = 0
    for count in counts:
        room -= count
        if room < 0:
            break
        served += 1
    return served
