"""How often values fell below each of some bounds, and their sum: enough to tell a percentile.

Owns the counts and nothing else; bounded, whatever is put in.
"""

from bisect import bisect_left


class Histogram:
    """`bounds` grow; a value counts for the first bound it is not above, or for none."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        assert list(bounds) == sorted(set(bounds)), bounds
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[float, int]]:
        """Each bound with how many values are not above it; the last bound is infinite."""
        found, below = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += count
            found.append((bound, below))
        return found
