"""Splitting of writes: whole, in order, and each within the limits of the store."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from broker.ports.meta import WRITE_BYTES_MAX, WRITE_KEYS_MAX
from broker.ports.meta_writes import (
    SPLIT_BYTES,
    SPLIT_KEYS,
    VALUE_BYTES_MAX,
    check_write,
    in_parts,
    split_write,
)

SIZES = st.integers(0, 300) | st.sampled_from([SPLIT_BYTES // 2, VALUE_BYTES_MAX - 8])


@given(
    sizes=st.lists(SIZES, max_size=250),
    gone=st.integers(0, 250),
    keys_max=st.integers(1, SPLIT_KEYS),
)
def test_parts_are_whole_in_order_and_leave_room(
    sizes: list[int], gone: int, keys_max: int
) -> None:
    puts = {f"p{number}": bytes(size) for number, size in enumerate(sizes)}
    deletes = [f"d{number}" for number in range(gone)]
    parts = list(split_write(puts, deletes, keys_max=keys_max))
    assert [item for some, _ in parts for item in some.items()] == list(puts.items())
    assert [key for _, some in parts for key in some] == deletes
    for some, away in parts:
        assert 0 < len(some) + len(away) <= keys_max
        fences = {f"fence{number}": 0 for number in range(WRITE_KEYS_MAX - SPLIT_KEYS - 1)}
        check_write(some | {"head": bytes(60_000)}, away, fences)
    for (some, away), (more, and_away) in pairwise(parts):
        full = len(some) + len(away) == keys_max
        following = next(iter(more.values()), b"")
        size = sum(map(len, some.values())) + len(following) + 5 * (len(some) + len(away) + 1)
        assert full or size > SPLIT_BYTES, "no more writes than needed"
        assert not (away and more), "puts come first"
        assert more or and_away


@given(st.integers(0, 3 * WRITE_BYTES_MAX))
def test_a_value_in_parts_is_whole(size: int) -> None:
    value = (b"%d" % size) * (size // 8) + bytes(size % 8)
    parts = in_parts(value)
    assert b"".join(parts) == value
    for part in parts:
        check_write({"a key": part}, (), {})
