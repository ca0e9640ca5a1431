"""The shard of a row key, by the hash rule of Milvus's proxies, so that both agree."""

import zlib

CRC_BYTES_MAX = 100
"""Only the first bytes of a text key are hashed: longer keys with equal prefixes share a shard."""

_HASH_MASK = 0x7FFFFFFF
_WORD = 0xFFFFFFFF
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def shard_of(key: int | str | bytes, shards: int) -> int:
    """The shard of a row key, in [0, shards); `shards` is at least 1.

    Raises ValueError for an integer that does not fit 64 signed bits.
    """
    assert shards >= 1, shards
    hashed = hash_int64(key) if isinstance(key, int) else hash_text(key)
    return hashed % shards


def hash_int64(key: int) -> int:
    """31 bits of Murmur3 (32 bit, seed 0) over the key's 8 bytes, little-endian.

    Source: Austin Appleby, MurmurHash3_x86_32, for keys of exactly two 32-bit words (no tail).
    """
    if not _INT64_MIN <= key <= _INT64_MAX:
        raise ValueError(f"row key {key} does not fit a signed 64-bit integer")
    state = 0
    for word in (key & _WORD, (key >> 32) & _WORD):
        mixed = (word * 0xCC9E2D51) & _WORD
        mixed = (_rotate(mixed, 15) * 0x1B873593) & _WORD
        state = (_rotate(state ^ mixed, 13) * 5 + 0xE6546B64) & _WORD
    # Murmur3 mixes in the length of the key: 8 bytes.
    state ^= 8
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _WORD
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _WORD
    return (state ^ (state >> 16)) & _HASH_MASK


def hash_text(key: str | bytes) -> int:
    """CRC-32 (IEEE) of the first bytes of a key; a str is encoded as UTF-8."""
    raw = key.encode() if isinstance(key, str) else key
    return zlib.crc32(raw[:CRC_BYTES_MAX])


def _rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (32 - bits))) & _WORD
