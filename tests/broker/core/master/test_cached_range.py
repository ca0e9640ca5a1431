"""Which requests a cached range serves, against the plain rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.master.cached_range import EMPTY, CachedRange, prefix_that_fits


@pytest.mark.parametrize(
    ("counts", "room", "served"),
    [([], 10, 0), ([10], 10, 1), ([11], 10, 0), ([4, 7, 1], 10, 1), ([4, 6, 1], 10, 2)],
)
def test_a_large_request_is_not_overtaken_by_a_small_one(
    counts: list[int], room: int, served: int
) -> None:
    assert prefix_that_fits(counts, room) == served


@given(st.lists(st.integers(1, 20), max_size=20), st.integers(0, 100))
def test_the_longest_prefix_that_fits_is_served(counts: list[int], room: int) -> None:
    served = prefix_that_fits(counts, room)
    assert sum(counts[:served]) <= room
    assert served == len(counts) or sum(counts[: served + 1]) > room


def test_the_start_moves_by_the_count_that_was_taken() -> None:
    cached = CachedRange(100, 10, 5.0)
    assert cached.take(4) == CachedRange(104, 6, 5.0)
    assert cached.take(10).count == 0
    for count in (0, 11):
        with pytest.raises(AssertionError):
            cached.take(count)


def test_timestamps_grow_old_and_ids_do_not() -> None:
    cached = CachedRange(100, 10, 5.0)
    assert not cached.too_old(5.9, 1.0)
    assert cached.too_old(6.0, 1.0)
    assert not cached.too_old(1e9, None)
    assert EMPTY.count == 0
