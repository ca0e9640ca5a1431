"""The outline of a body of Arrow rows: an IPC stream of exactly one schema and one record batch.

Reads flatbuffers by position and trusts none of their numbers: it returns the number of rows, where
the buffers are and their declared uncompressed sizes, so that the Arrow library, which allocates
what it is told, is only called after these were checked. Needs no library itself.
Source of the layout: the Arrow Columnar Format, "Encapsulated message format", and its Message.fbs.
"""

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

SCHEMA_BYTES_MAX: Final = 64 * 1024
_SCHEMA: Final = 1
_RECORD_BATCH: Final = 3
_PACKINGS: Final = {0: "lz4", 1: "zstd"}
_HEAD: Final = Struct("<Ii")
_CONTINUES: Final = 0xFFFFFFFF
_U16, _U32, _I32, _I64 = Struct("<H"), Struct("<I"), Struct("<i"), Struct("<q")
_PAIR: Final = Struct("<qq")
_UNPACKED: Final = -1
"""In front of a buffer that was left as it is in a body that is packed."""


class BadArrow(ValueError):
    """A body that is not one schema and one record batch of Arrow, whole and within bounds."""


class Outline(NamedTuple):
    """What a body claims, as far as one can see without its columns."""

    schema: bytes
    """The schema, as a message of its own; the record batch lies behind it."""
    rows: int
    lengths: tuple[int, ...]
    """Of each array, nested ones after the one they are in."""
    unpacked_bytes: int
    """Of all buffers together."""
    packing: str | None
    """How the buffers are packed: "lz4" or "zstd"."""


class _Part(NamedTuple):
    metadata: bytes
    body_from: int


def outline(body: bytes) -> Outline:
    """Raises BadArrow. The time it takes grows with the number of buffers alone."""
    first = _part(body, 0)
    if len(first.metadata) > SCHEMA_BYTES_MAX:
        size = len(first.metadata)
        raise BadArrow(f"the schema has {size} bytes; the limit is {SCHEMA_BYTES_MAX}")
    _check_schema(first.metadata)
    second = _part(body, first.body_from)
    table, length = _header(second.metadata, _RECORD_BATCH, "a record batch")
    if second.body_from + length != len(body):
        raise BadArrow(
            f"the record batch has {length} bytes, {len(body) - second.body_from} are there;"
            " send one record batch, and nothing behind it"
        )
    rows, packing = table.number(0), _packing(second.metadata, table)
    arrays = table.pairs(1)
    if rows < 0 or any(not 0 <= nulls <= each for each, nulls in arrays):
        raise BadArrow(f"a record batch of {rows} rows, and arrays of {arrays[:8]}")
    packed = packing is not None
    unpacked = _unpacked_bytes(body, second.body_from, table.pairs(2), packed=packed)
    lengths = tuple([each for each, _ in arrays])
    return Outline(body[: first.body_from], rows, lengths, unpacked, packing)


@lru_cache(maxsize=64)
def _check_schema(metadata: bytes) -> None:
    """Once for all rows of a producer: they bring the same schema each time."""
    _, length = _header(metadata, _SCHEMA, "a schema")
    if length:
        raise BadArrow(f"a schema with a body of {length} bytes; it has none")


def _part(body: bytes, at: int) -> _Part:
    """The message that begins at `at`."""
    if len(body) - at < _HEAD.size:
        raise BadArrow(f"{len(body)} bytes end before the message at {at}")
    mark, length = _HEAD.unpack_from(body, at)
    if mark != _CONTINUES:
        raise BadArrow(f"no Arrow message begins at byte {at}")
    start = at + _HEAD.size
    # Arrow pads metadata to a multiple of 8 bytes.
    if not 8 <= length <= len(body) - start or length % 8:
        raise BadArrow(f"a message at byte {at} with {length} bytes of metadata")
    return _Part(body[start : start + length], start + length)


def _header(metadata: bytes, kind: int, name: str) -> "tuple[_Table, int]":
    """The header of a message, and how long the message's body is."""
    message = _Table(metadata, _u32(metadata, 0))
    found = metadata[message.at(1)] if message.at(1) else 0
    if found != kind:
        raise BadArrow(f"an Arrow message of type {found}; expected {name}, type {kind}")
    at = message.at(2)
    if not at:
        raise BadArrow(f"{name} without a header")
    return _Table(metadata, at + _u32(metadata, at)), message.number(3)


def _packing(metadata: bytes, batch: "_Table") -> str | None:
    at = batch.at(3)
    if not at:
        return None
    how = _Table(metadata, at + _u32(metadata, at))
    codec = metadata[how.at(0)] if how.at(0) else 0
    if codec not in _PACKINGS:
        raise BadArrow(f"buffers packed in way {codec}, which is not known")
    return _PACKINGS[codec]


def _unpacked_bytes(
    body: bytes, start: int, buffers: list[tuple[int, int]], *, packed: bool
) -> int:
    """What all buffers hold; they lie one after the other, so no byte counts twice."""
    end, total, room = 0, 0, len(body) - start
    for offset, length in buffers:
        if length == 0:
            continue
        # Overlapping buffers would let a few bytes claim any number of values.
        if offset < end or length < 0 or length > room - offset:
            raise BadArrow(
                f"a buffer of {length} bytes at {offset}, of {room} bytes in the record batch of"
                f" which {end} were given out"
            )
        end = offset + length
        total += _claimed(body, start + offset, length) if packed else length
    return total


def _claimed(body: bytes, at: int, length: int) -> int:
    """How long a packed buffer says that it will be."""
    if length < _I64.size:
        raise BadArrow(f"a packed buffer of {length} bytes, too short for its size")
    claimed = int(_I64.unpack_from(body, at)[0])
    if claimed == _UNPACKED:
        return length - _I64.size
    if claimed < 0:
        raise BadArrow(f"a packed buffer of {claimed} bytes")
    return claimed


class _Table:
    """A flatbuffers table at `at`; nothing outside of `data` is ever looked at."""

    __slots__ = ("_at", "_data", "_fields")

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        vtable = at - _read(_I32, data, at)
        size = _read(_U16, data, vtable)
        if size < 4 or size % 2:
            raise BadArrow(f"a table of fields of {size} bytes")
        # No field behind the sixth is read, so a forged size cannot make this list long.
        self._fields = [_read(_U16, data, vtable + it) for it in range(4, min(size, 16), 2)]

    def at(self, index: int) -> int:
        """Where a field lies; 0 for one that is missing."""
        if index >= len(self._fields) or not self._fields[index]:
            return 0
        at = self._at + self._fields[index]
        if at >= len(self._data):
            raise BadArrow(f"a field at {at} of {len(self._data)} bytes")
        return at

    def number(self, index: int) -> int:
        """A field of 64 bits; 0 when it is missing."""
        at = self.at(index)
        return _read(_I64, self._data, at) if at else 0

    def pairs(self, index: int) -> list[tuple[int, int]]:
        """A list of structs of two numbers of 64 bits."""
        at = self.at(index)
        if not at:
            return []
        at += _u32(self._data, at)
        count = _u32(self._data, at)
        start, stop = at + _U32.size, at + _U32.size + count * _PAIR.size
        if stop > len(self._data):
            raise BadArrow(f"a list of {count} that ends at {stop} of {len(self._data)} bytes")
        return list(_PAIR.iter_unpack(self._data[start:stop]))


def _u32(data: bytes, at: int) -> int:
    return _read(_U32, data, at)


def _read(form: Struct, data: bytes, at: int) -> int:
    if not 0 <= at <= len(data) - form.size:
        raise BadArrow(f"a position of {at} in {len(data)} bytes of metadata")
    return int(form.unpack_from(data, at)[0])
