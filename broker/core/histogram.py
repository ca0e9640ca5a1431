"""A histogram with fixed bounds: counts and the sum, enough to estimate percentiles."""

from bisect import bisect_left


class Histogram:
    """`bounds` must increase; a value counts in the first bucket whose bound is not below it."""

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
        """Cumulative counts: each bound with the number of values up to it; the last: infinity."""
        found, below = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += count
            found.append((bound, below))
        return found
