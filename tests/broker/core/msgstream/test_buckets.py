"""Which bucket a message goes to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.msgstream.buckets import (
    BadRepack,
    buckets_of,
    check_buckets,
    only_bucket,
    rows_by_bucket,
)


def test_a_bucket_is_the_hash_key_modulo_the_number_of_channels() -> None:
    assert buckets_of([[5, 8, 3], [7], []], 2) == [[1, 0, 1], [1], []]


def test_rows_keep_their_order_within_a_bucket() -> None:
    lengths = {"timestamps": 3, "row ids": 3}
    assert rows_by_bucket(0, "INSERT", [1, 0, 1], lengths) == {1: [0, 2], 0: [1]}


@given(st.lists(st.integers(0, 4), max_size=20))
def test_each_row_is_in_the_bucket_that_was_named_for_it(buckets: list[int]) -> None:
    rows = rows_by_bucket(0, "INSERT", buckets, {"rows": len(buckets)})
    assert {row: bucket for bucket, some in rows.items() for row in some} == dict(
        enumerate(buckets)
    )
    assert all(some == sorted(some) for some in rows.values())


def test_columns_of_unequal_length_are_named() -> None:
    with pytest.raises(BadRepack, match=r"message 4 \(INSERT\) has 2 hash keys, but 3 timestamps"):
        rows_by_bucket(4, "INSERT", [0, 1], {"timestamps": 3})


@pytest.mark.parametrize("keys", [[], [1, 2]])
def test_a_message_that_goes_whole_needs_exactly_one_hash_key(keys: list[int]) -> None:
    assert only_bucket(0, "SEARCH", [3]) == 3
    with pytest.raises(BadRepack, match=rf"has {len(keys)} hash keys"):
        only_bucket(0, "SEARCH", keys)


@pytest.mark.parametrize("bucket", [-1, 2])
def test_an_unknown_bucket_is_named(bucket: int) -> None:
    check_buckets([0, 1], 2)
    with pytest.raises(BadRepack, match=rf"bucket {bucket}; there are 2 channels"):
        check_buckets([0, bucket], 2)
