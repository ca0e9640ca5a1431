"""Buckets against counting by hand."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.histogram import Histogram

NUMBERS = st.floats(min_value=-1e6, max_value=1e6)


@given(st.lists(NUMBERS), st.sets(NUMBERS).map(sorted).map(tuple))
def test_each_bucket_counts_the_values_not_above_its_bound(
    values: list[float], bounds: tuple[float, ...]
) -> None:
    histogram = Histogram(bounds)
    for value in values:
        histogram.add(value)
    for bound, count in histogram.buckets():
        assert count == sum(value <= bound for value in values)
    assert histogram.buckets()[-1] == (float("inf"), len(values))
    assert abs(histogram.sum - sum(values)) <= 1e-6 * (1 + sum(map(abs, values)))
