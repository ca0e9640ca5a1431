"""The stored form of a gap: it stands for records whose space was given back. See README.md.

A rewritten segment has one gap in the place of each run of records that nobody needs, so that ids
still follow one another and a missing record is still damage. A gap has the frame of a record, as
version 7, with the number of ids in the place of the messages and no sizes, and behind the frame

    last tick u64                                   of the newest record in the run

Its checksum has the mark 0 and its version is inside the covered bytes, so a release that does not
know gaps refuses the log and does not take one for a torn tail.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from google_crc32c import value as crc32c

from broker.model.ids import MessageId, Term, TimeTick

VERSION_GAP: Final = 7
GAP_KIND: Final = 0xFFFF_FFFF
"""No type of message has this number."""
GAP_IDS_MAX: Final = 0xFFFF_FFFF
_MAGIC_AND_VERSION = b"\xd7TmR" + struct.pack("<I", VERSION_GAP)
_NAME_MARK = VERSION_GAP << 24
_PREFIX = struct.Struct("<8sII")
_FIELDS = struct.Struct("<qqQqqIIIQ")
GAP_BYTES: Final = _PREFIX.size + _FIELDS.size


class Gap(NamedTuple):
    """Ids [base_id, next_id) and ticks [base_tick, last_tick] without records; its place."""

    offset: int
    end: int
    term: Term
    base_id: MessageId
    next_id: MessageId
    base_tick: TimeTick
    last_tick: TimeTick

    def joined(self, other: "Gap") -> "Gap":
        """This gap and the one behind it as one."""
        return self._replace(end=other.end, next_id=other.next_id, last_tick=other.last_tick)


class GapMet(Exception):
    """Where a record was expected there is an intact gap.

    An exception, so that reading a record costs nothing more in logs without gaps.
    """

    def __init__(self, gap: Gap) -> None:
        super().__init__(f"ids {gap.base_id} to {gap.next_id - 1} were given back")
        self.gap = gap


def encode_gap(gap: Gap, salt: int) -> Iterator[bytes]:
    """Its stored forms, one for each `GAP_IDS_MAX` ids: most often a single one."""
    at, tick = gap.base_id, gap.base_tick
    while at < gap.next_id:
        until = MessageId(min(at + GAP_IDS_MAX, gap.next_id))
        count = until - at
        fields = _FIELDS.pack(
            gap.term, at, tick, at, at, count, GAP_KIND, _NAME_MARK, gap.last_tick
        )
        yield _PREFIX.pack(_MAGIC_AND_VERSION, GAP_BYTES, crc32c(fields) ^ salt) + fields
        at, tick = until, gap.last_tick


def is_gap(buffer: bytes, at: int) -> bool:
    """Whether a gap seems to begin there."""
    return buffer[at : at + 8] == _MAGIC_AND_VERSION


def decode_gap(buffer: bytes, at: int, offset: int, salt: int) -> Gap | None:
    """The gap at `at`, which is byte `offset` of its file; None when it is not intact."""
    if len(buffer) - at < GAP_BYTES:
        return None
    _, length, checksum = _PREFIX.unpack_from(buffer, at)
    fields = buffer[at + _PREFIX.size : at + GAP_BYTES]
    if length != GAP_BYTES or crc32c(fields) ^ salt != checksum:
        return None
    term, base_id, base_tick, _, _, count, kind, name, last_tick = _FIELDS.unpack(fields)
    if kind != GAP_KIND or name != _NAME_MARK or not count:
        return None
    return Gap(
        offset,
        offset + GAP_BYTES,
        Term(term),
        MessageId(base_id),
        MessageId(base_id + count),
        TimeTick(base_tick),
        TimeTick(last_tick),
    )
