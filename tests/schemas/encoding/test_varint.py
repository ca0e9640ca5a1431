"""Varints, beside the naive seven bits at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.varint import Malformed, read_varint, signed, varint
from tests.schemas import messages


def naive(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


edges = st.integers(0, 9).flatmap(
    lambda sevens: st.integers(max(0, 2 ** (7 * sevens) - 2), 2 ** (7 * sevens) + 2)
)


@given(st.integers(0, 2**64 - 1) | edges)
def test_numbers_are_written_by_sevens_and_read_back(value: int) -> None:
    assert varint(value) == naive(value)
    assert read_varint(b"x" + varint(value) + b"y", 1, 99) == (value, 1 + len(varint(value)))


@given(messages.int64s)
def test_negative_numbers_take_ten_bytes_and_come_back_signed(value: int) -> None:
    value = -abs(value) or -1
    assert len(varint(value)) == 10
    assert signed(read_varint(varint(value), 0, 10)[0]) == value


@given(messages.odd_varints(messages.ticks))
def test_longer_than_minimal_is_read(encoded: bytes) -> None:
    value, after = read_varint(encoded, 0, len(encoded))
    assert after == len(encoded)
    assert varint(value)[:-1] == encoded[: len(varint(value)) - 1]


@pytest.mark.parametrize("size", range(10))
def test_a_number_that_is_cut_off_is_malformed(size: int) -> None:
    with pytest.raises(Malformed, match="cut off"):
        read_varint(b"\x80" * 20, 3, 3 + size)


def test_more_than_ten_bytes_are_refused() -> None:
    with pytest.raises(Malformed, match="10 bytes"):
        read_varint(b"\x80" * 10 + b"\x00", 0, 11)


def test_more_than_64_bits_are_refused() -> None:
    assert read_varint(b"\xff" * 9 + b"\x01", 0, 10) == (2**64 - 1, 10)
    with pytest.raises(Malformed, match="64 bits"):
        read_varint(b"\xff" * 9 + b"\x02", 0, 10)
