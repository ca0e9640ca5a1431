"""Which shard each row goes to: the vectorised rule beside the plain one."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.append.arrow_batches import BODY_BYTES_MAX, shard_indices, split_rows
from broker.client.cluster.targets import Shards
from broker.client.errors import BadTarget, MessageTooLarge
from broker.core.sharding import shard_of
from broker.model.ids import VChannelName
from schemas.arrow.rows import decode_rows

SHARDS = st.integers(1, 1024)
shard_indices(pa.array([], pa.int64()), 1)
"""The first call loads parts of pyarrow, which is too slow for an example."""


def of_collection(count: int) -> Shards:
    return Shards("rows", tuple([VChannelName(f"p-0_1v{at}") for at in range(count)]))


def check(keys: list[Any], kind: Any, shards: int) -> None:
    found = shard_indices(pa.array(keys, kind), shards).to_pylist()
    assert found == [None if key is None else shard_of(key, shards) for key in keys]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), SHARDS)
def test_whole_numbers_go_where_the_rule_says(keys: list[int | None], shards: int) -> None:
    check(keys, pa.int64(), shards)


@given(st.lists(st.none() | st.integers(-128, 127)), SHARDS)
def test_small_numbers_are_whole_numbers_too(keys: list[int | None], shards: int) -> None:
    check(keys, pa.int8(), shards)


@given(st.lists(st.none() | st.text()), SHARDS)
def test_texts_go_where_the_rule_says(keys: list[str | None], shards: int) -> None:
    check(keys, pa.string(), shards)


@given(st.lists(st.none() | st.binary(max_size=200)), SHARDS)
def test_bytes_go_where_the_rule_says(keys: list[bytes | None], shards: int) -> None:
    check(keys, pa.binary(), shards)


@given(
    st.lists(st.tuples(st.none() | st.integers(0, 50), st.binary(max_size=9)), min_size=1),
    st.integers(1, 7),
)
def test_every_row_is_in_one_piece_and_those_of_a_key_keep_their_order(
    rows: list[tuple[int | None, bytes]], shards: int
) -> None:
    table = pa.table(
        {"k": pa.array([it[0] for it in rows], pa.int64()), "v": [it[1] for it in rows]}
    )
    seen: dict[int | None, list[bytes]] = {}
    for vchannel, count, body in split_rows(table, of_collection(shards), "k"):
        part = decode_rows(body)
        assert part.num_rows == count
        for row in part.to_pylist():
            seen.setdefault(row["k"], []).append(row["v"])
            assert row["k"] is None or vchannel == f"p-0_1v{shard_of(row['k'], shards)}"
    for key in {it[0] for it in rows}:
        given = [value for each, value in rows if each == key]
        assert (sorted(seen[key]) if key is None else seen[key]) == (
            sorted(given) if key is None else given
        )


def test_rows_of_unlike_sizes_are_halved_until_they_fit() -> None:
    values = [b"x"] * 1000 + [bytes(3 << 20)] * 4
    pieces = list(split_rows(pa.table({"v": values}), of_collection(1), None))
    assert all(len(body) <= BODY_BYTES_MAX for _, _, body in pieces)
    assert [it for _, _, body in pieces for it in decode_rows(body)["v"].to_pylist()] == values


def test_the_error_for_a_row_that_is_too_large_has_its_size() -> None:
    with pytest.raises(MessageTooLarge, match="one row of"):
        list(split_rows(pa.table({"v": [bytes(9 << 20)]}), of_collection(1), None))


def test_numbers_beyond_64_signed_bits_are_no_keys() -> None:
    table = pa.table({"k": pa.array([1, 2**64 - 1], pa.uint64())})
    with pytest.raises(BadTarget, match="64-bit"):
        list(split_rows(table, of_collection(2), "k"))
