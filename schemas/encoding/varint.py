"""Variable-length integers of protobuf, and the error for malformed bytes."""

from functools import lru_cache
from typing import Final

UINT64_MAX: Final = (1 << 64) - 1
_VARINT_BYTES_MAX: Final = 10
_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))
_LOW_BITS: Final = 21
_SHOWN_MAX: Final = 64


class Malformed(ValueError):
    """Bytes or text that break the format: `what` is wrong, at `offset` of what was scanned."""

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(f"{what} at offset {offset}")
        self.what = what
        self.offset = offset


def shown(text: str) -> str:
    """`text` for an error message: quoted, and cut when it is long, since a peer chose it."""
    return repr(text) if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]!r}..."


def varint(value: int) -> bytes:
    """Encode; a negative number goes as its two's complement of 64 bits, as in an int64 field."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    if 0 <= value < 16384:
        return bytes((value & 127 | 128, value >> 7))
    if 0 <= value < 2097152:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    value &= UINT64_MAX
    # The low bits change with each number, the high ones rarely: only those are cached.
    low = bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128))
    return low + _high_bits(value >> _LOW_BITS)


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The number at `position` and the position after it, which is at most `end`.

    Longer than minimal encodings are accepted, as all protobuf readers do.
    Raises Malformed when it runs past `end`, takes more than ten bytes or exceeds 64 bits.
    """
    if position < end:
        first = data[position]
        if first < 128:
            return first, position + 1
        if position + 1 < end and (second := data[position + 1]) < 128:
            return first & 127 | second << 7, position + 2
    return _read_long(data, position, end)


def signed(value: int) -> int:
    """What an int64 field means by this varint."""
    return value - (1 << 64) if value >> 63 else value


def _read_long(data: bytes, position: int, end: int) -> tuple[int, int]:
    # Nine bytes are a time tick: its high bits are those of many others.
    if end - position > 8 and data[position + 2] > 127:
        high = _six_bytes(data[position + 3 : position + 9])
        if high >= 0:
            low = data[position] & 127 | (data[position + 1] & 127) << 7
            return low | (data[position + 2] & 127) << 14 | high << _LOW_BITS, position + 9
    value = shift = 0
    for byte in data[position : min(end, position + _VARINT_BYTES_MAX)]:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            if value > UINT64_MAX:
                raise Malformed("a varint of more than 64 bits", position)
            return value, position + shift // 7
    if end - position < _VARINT_BYTES_MAX:
        raise Malformed("a varint that is cut off", position)
    raise Malformed("a varint of more than 10 bytes", position)


@lru_cache(maxsize=1024)
def _six_bytes(data: bytes) -> int:
    """The number in the last six bytes of a varint; -1 when they are not that."""
    if min(data[:5]) < 128 or data[5] > 127:
        return -1
    return sum([(byte & 127) << 7 * at for at, byte in enumerate(data)])


@lru_cache(maxsize=1024)
def _high_bits(value: int) -> bytes:
    """Of time ticks these change about once a second, so nearly every call is remembered."""
    return _by_sevens(value)


def _by_sevens(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
