"""The hash rule, against published vectors and a plain Murmur3 over bytes."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.sharding import hash_int64, hash_text, shard_of

INT64 = st.integers(-(2**63), 2**63 - 1)


def naive_murmur3(data: bytes) -> int:
    """Murmur3, 32 bit, seed 0, for any length."""

    def scrambled(word: int) -> int:
        word = word * 0xCC9E2D51 % 2**32
        word = (word << 15 | word >> 17) % 2**32
        return word * 0x1B873593 % 2**32

    state = 0
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        state ^= scrambled(int.from_bytes(data[start : start + 4], "little"))
        state = (state << 13 | state >> 19) % 2**32
        state = (state * 5 + 0xE6546B64) % 2**32
    if whole < len(data):
        state ^= scrambled(int.from_bytes(data[whole:], "little"))
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ state >> shift) * factor % 2**32
    return state ^ state >> 16


def test_the_naive_model_knows_hello() -> None:
    assert naive_murmur3(b"hello") == 0x248BFA47


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (0, 1669671676),
        (1, 1392991556),
        (2, 1176478452),
        (3, 591091635),
        (100, 1177227376),
        (-1, 1651860712),
    ],
)
def test_integers_hash_as_in_milvus(key: int, hashed: int) -> None:
    assert hash_int64(key) == hashed


@pytest.mark.parametrize(("key", "hashed"), [("a", 3904355907), ("user-1", 2116437524)])
def test_texts_hash_as_in_milvus(key: str, hashed: int) -> None:
    assert hash_text(key) == hashed
    assert hash_text(key.encode()) == hashed


@given(INT64)
def test_integers_hash_like_the_naive_model(key: int) -> None:
    assert hash_int64(key) == naive_murmur3(key.to_bytes(8, "little", signed=True)) & 0x7FFFFFFF


@given(st.binary(max_size=300))
def test_only_the_first_hundred_bytes_of_a_text_count(key: bytes) -> None:
    assert hash_text(key) == zlib.crc32(key[:100])


@given(st.one_of(INT64, st.text(), st.binary()), st.integers(1, 1024))
def test_a_shard_is_the_hash_modulo_the_shards(key: int | str | bytes, shards: int) -> None:
    shard = shard_of(key, shards)
    assert 0 <= shard < shards
    assert shard == (hash_int64(key) if isinstance(key, int) else hash_text(key)) % shards


@pytest.mark.parametrize("key", [2**63, -(2**63) - 1])
def test_an_integer_beyond_64_bits_is_refused_by_value(key: int) -> None:
    with pytest.raises(ValueError, match=str(key)):
        shard_of(key, 4)
