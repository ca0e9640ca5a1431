"""The sparse index of a segment: one entry about every 64 KiB. Stored when the segment is sealed.

A lost or damaged index costs a scan, never data. Stored layout, little-endian:

    magic 8 | version u32 | CRC-32C u32
    end i64 | next id i64 | last tick u64 | last term i64 | count u32
    ids i64 * count | ticks u64 * count | offsets i64 * count
"""

import struct
import sys
from array import array
from bisect import bisect_right
from typing import Self

from google_crc32c import value as crc32c

from broker.model.ids import MessageId, Term, TimeTick
from broker.wal.segmented.segment import HEADER_BYTES, LogSegment, SegmentName

_MAGIC = b"TideIndx"
_VERSION = 1
_PREFIX = struct.Struct("<8sII")
_FIELDS = struct.Struct("<qqQqI")


class SparseIndex:
    """One thread adds, any thread looks up. Always has the first record of the segment."""

    def __init__(self, spacing_bytes: int) -> None:
        self._spacing_bytes = spacing_bytes
        self._ids, self._ticks, self._offsets = array("q"), array("Q"), array("q")

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def first_tick(self) -> int | None:
        """The tick of the segment's first message; None when it is empty."""
        return self._ticks[0] if self._ticks else None

    def add(self, first_id: int, tick: int, offset: int) -> None:
        """Add the record at `offset`, unless the last entry is closer than the spacing."""
        if self._offsets and offset - self._offsets[-1] < self._spacing_bytes:
            return
        self._offsets.append(offset)
        self._ticks.append(tick)
        self._ids.append(first_id)  # last: lookups on other threads use `len(ids)` as the bound

    def offset_of_id(self, message_id: int) -> int:
        """A record's offset at or before the one that holds `message_id`."""
        at = bisect_right(self._ids, message_id) - 1
        return self._offsets[at] if at >= 0 else HEADER_BYTES

    def offset_of_tick(self, tick: int) -> int:
        """A record's offset at or before the first that has a tick >= `tick`."""
        at = bisect_right(self._ticks, tick, hi=len(self._ids)) - 1
        return self._offsets[at] if at >= 0 else HEADER_BYTES

    def offset_below(self, offset: int) -> int:
        """The largest indexed record offset <= `offset`."""
        at = bisect_right(self._offsets, offset, hi=len(self._ids)) - 1
        return self._offsets[at] if at >= 0 else HEADER_BYTES

    def encode(self, segment: LogSegment) -> bytes:
        """The stored form, for a segment sealed as described by `segment`."""
        columns = b"".join(_little_endian(c) for c in (self._ids, self._ticks, self._offsets))
        fields = _FIELDS.pack(
            segment.end, segment.next_id, segment.last_tick, segment.last_term, len(self)
        )
        return _PREFIX.pack(_MAGIC, _VERSION, crc32c(fields + columns)) + fields + columns

    @classmethod
    def decode(
        cls, data: bytes, name: SegmentName, salt: int, spacing_bytes: int
    ) -> tuple[Self, LogSegment] | None:
        """The index and the seal it was stored with; None when damaged or of another version."""
        if len(data) < _PREFIX.size + _FIELDS.size:
            return None
        magic, version, checksum = _PREFIX.unpack_from(data)
        if magic != _MAGIC or version != _VERSION or crc32c(data[_PREFIX.size :]) != checksum:
            return None
        end, next_id, tick, term, count = _FIELDS.unpack_from(data, _PREFIX.size)
        index, start = cls(spacing_bytes), _PREFIX.size + _FIELDS.size
        if len(data) != start + 24 * count:
            return None
        for number, column in enumerate((index._ids, index._ticks, index._offsets)):
            column.frombytes(data[start + 8 * count * number : start + 8 * count * (number + 1)])
            if sys.byteorder == "big":
                column.byteswap()
        return index, LogSegment(name, salt, end, MessageId(next_id), TimeTick(tick), Term(term))


def _little_endian(column: "array[int]") -> bytes:
    if sys.byteorder == "big":
        # A copy: `byteswap` works in place, and readers may look things up meanwhile.
        column = column[:]
        column.byteswap()
    return column.tobytes()
