"""The stored form of a record: encoding, and decoding that trusts no byte. See README.md.

What damage means is decided in `scan.py`. Layout, little-endian:

    magic 4 | version u32 | length u32 | CRC-32C u32          the first 16 bytes, in every version
    term i64 | base id i64 | base tick u64 | last confirmed i64 | group id i64
    count u32 | kind u32 | vchannel bytes u32
    vchannel | sizes u32 * count | body

Version 2, for records of a transaction, has between sizes and body:

    transaction id u64 | keepalive ms i64 | begin id i64 | bodies before u64

and version 3, for batches whose body is only payloads, has there what the payloads share:

    codec u32 | properties bytes u32 | keys u32 | keys bytes u32 | producer bytes u32
    sequence i64 | properties | producer | key sizes u32 * keys | keys

Version 4, for batches in a transaction, has both, in this order. Versions 5 and 6 are 3 and 4 for
batches whose messages have properties of their own: `own bytes u32` behind the sequence, and
`own sizes u32 * count | own` behind the keys.

`length` counts the whole record. The checksum covers everything behind it. It is stored XORed with
the segment's salt, a random number as in SQLite's WAL: neither leftovers of another segment nor a
payload that imitates a record can pass for one. The version field lies before what the checksum
covers: versions 2 to 4 XOR a constant on top, and versions 5 and 6 set the top byte of `vchannel
bytes` to the version, so that no record can be read as one of another version.

`group id` is the next id that was durable when the record was written. A good record with a group
id above the ids of a bad record before it proves that the bad one had been durable: so that is
damage and not a torn tail.

Version 7 is no record but a gap (`formats/gap_format.py`), version 8 a record of which messages
were removed (`formats/thinned_format.py`), both in segments whose space was given back.

Of a compressed body the sizes are those of the messages before compression. Producer bytes 0: the
batch has no sequence number. A codec not yet in `Codec` needs a new version.

Next: broker/wal/segmented/os_files.py
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from broker.model.ids import MessageId, Term, TimeTick
from broker.model.record import Record
from broker.ports.files import ReadableFile
from broker.ports.wal import UnknownFormat
from broker.wal.segmented.formats.gap_format import (
    GAP_BYTES,
    GAP_KIND,
    VERSION_GAP,
    GapMet,
    decode_gap,
    is_gap,
)
from broker.wal.segmented.formats.record_parts import (
    IN_TXN,
    LEAST_BYTES,
    LENGTH_MARKS,
    MARKS,
    OF_BATCHES,
    VERSION,
    BadPart,
    batch_at,
    encode_parts,
    part_at,
    part_bytes,
    sizes_of,
    version_of,
)
from broker.wal.segmented.formats.thinned_format import (
    NAME_MARK,
    VERSION_THINNED,
    ThinnedMet,
    decode_thinned,
    is_thinned,
)

MAGIC = b"\xd7TmR"
_PREFIX = struct.Struct("<4sIII")
_FIELDS = struct.Struct("<qqQqqIII")
_FRAME = struct.Struct(_PREFIX.format + _FIELDS.format[1:])
FRAME_BYTES = _FRAME.size
# Magic number and version as one key: one look-up for every record that is read.
_VERSIONS = {MAGIC + struct.pack("<I", version): version for version in MARKS}


class BadRecord(Exception):
    """There is no whole, intact record at `offset`."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset, self.reason = offset, reason


class Frame(NamedTuple):
    """The fixed part of a record, not verified by the checksum."""

    length: int
    checksum: int
    term: int
    base_id: int
    base_tick: int
    last_confirmed_id: int
    group_id: int
    messages: int
    kind: int
    name_bytes: int

    @property
    def next_id(self) -> int:
        return self.base_id + self.messages

    @property
    def is_gap(self) -> bool:
        return self.kind == GAP_KIND


class Stored(NamedTuple):
    """A record that passed its checksum, with its place in the file."""

    offset: int
    end: int
    group_id: int
    record: Record

    @property
    def term(self) -> Term:
        return self.record.term

    @property
    def base_id(self) -> MessageId:
        return self.record.base_id

    @property
    def next_id(self) -> MessageId:
        return self.record.next_id

    @property
    def base_tick(self) -> TimeTick:
        return self.record.base_tick

    @property
    def last_tick(self) -> TimeTick:
        return self.record.last_tick

    @property
    def records(self) -> tuple[Record, ...]:
        """The record alone, as of a thinned one its runs."""
        return (self.record,)


class Window:
    """A file up to `end` as one buffer, read in chunks."""

    def __init__(self, file: ReadableFile, path: str, end: int, chunk_bytes: int) -> None:
        self.path, self.end = path, end
        self._file, self._chunk_bytes = file, chunk_bytes
        self._start, self._buffer = 0, b""

    def span(self, offset: int, size: int) -> tuple[bytes, int]:
        """A buffer and the position in it of file bytes `[offset, offset + size)`, cut at `end`."""
        at = offset - self._start
        wanted = min(size, self.end - offset)
        if at < 0 or at + wanted > len(self._buffer):
            reach = max(wanted, min(self._chunk_bytes, self.end - offset))
            self._buffer, self._start, at = self._file.read(offset, max(reach, 0)), offset, 0
        return self._buffer, at


def encode(record: Record, group_id: int, salt: int) -> tuple[bytes, bytes]:
    """The stored form as head and body, so that the body is not copied."""
    name, sizes, body = record.vchannel.encode(), record.sizes, record.body
    version = version_of(record)
    fields = _fields_of(len(name), len(sizes)).pack(
        record.term,
        record.base_id,
        record.base_tick,
        record.last_confirmed_id,
        group_id,
        len(sizes),
        record.kind,
        len(name) ^ LENGTH_MARKS[version],
        name,
        *sizes,
    )
    if version != VERSION:
        fields += encode_parts(record)
    checksum = crc32c_extend(crc32c(fields), body) ^ salt ^ MARKS[version]
    length = _PREFIX.size + len(fields) + len(body)
    # Two parts: a large body goes to the disk without a copy.
    return _PREFIX.pack(MAGIC, version, length, checksum) + fields, body


def encode_group(records: Sequence[Record], group_id: int, salt: int) -> list[bytes]:
    """Head and body of each record, one behind the other."""
    return [part for record in records for part in encode(record, group_id, salt)]


@lru_cache(1024)  # compiling a Struct costs more than packing with it
def _fields_of(name_bytes: int, messages: int) -> struct.Struct:
    return struct.Struct(f"{_FIELDS.format}{name_bytes}s{messages}I")


def frame_at(window: Window, offset: int) -> Frame:
    """The fixed part of the record at `offset`; raises BadRecord when it cannot be one."""
    buffer, at = window.span(offset, FRAME_BYTES)
    if len(buffer) - at < FRAME_BYTES or window.end - offset < FRAME_BYTES:
        raise BadRecord(offset, "the file ends inside a record's header")
    magic, version, *fields = _FRAME.unpack_from(buffer, at)
    if magic != MAGIC:
        raise BadRecord(offset, "no record begins here")
    frame = Frame(*fields)
    if version == VERSION_GAP and frame.is_gap and frame.length == GAP_BYTES and frame.messages:
        return frame._replace(name_bytes=0)
    if version == VERSION_THINNED:
        return _thinned_frame(window, offset, frame)
    if version not in MARKS:
        raise BadRecord(offset, f"unknown version {version}")
    frame = frame._replace(name_bytes=frame.name_bytes ^ LENGTH_MARKS[version])
    if frame.length > window.end - offset:
        raise BadRecord(offset, "the record reaches beyond the end")
    before_part = FRAME_BYTES + frame.name_bytes + 4 * frame.messages
    if before_part + LEAST_BYTES[version] > frame.length or not frame.messages:
        raise BadRecord(offset, "the record's lengths disagree")
    return frame


def _thinned_frame(window: Window, offset: int, frame: Frame) -> Frame:
    frame = frame._replace(name_bytes=frame.name_bytes ^ NAME_MARK)
    if frame.length > window.end - offset:
        raise BadRecord(offset, "the record reaches beyond the end")
    if FRAME_BYTES + frame.name_bytes > frame.length or not frame.messages:
        raise BadRecord(offset, "the record's lengths disagree")
    return frame


def record_at(window: Window, offset: int, salt: int) -> Stored:
    """The intact record at `offset`; raises BadRecord, or UnknownFormat when it is newer.

    GapMet when there is an intact gap, ThinnedMet when there is an intact thinned record.
    """
    buffer, at = window.span(offset, FRAME_BYTES)
    version = _VERSIONS.get(buffer[at : at + 8], 0)
    if len(buffer) - at < FRAME_BYTES or not version:
        _meet_gap(window, offset, salt)
        _meet_thinned(window, offset, salt)
        _refuse_newer(window, offset, salt)
        # Not a record: this raises the precise reason, which the fast path above does not work out.
        frame_at(window, offset)
    _, _, length, checksum, term, base_id, base_tick, confirmed, group_id, count, kind, name = (
        _FRAME.unpack_from(buffer, at)
    )
    name ^= LENGTH_MARKS[version]
    part_from = FRAME_BYTES + name + 4 * count
    if part_from + LEAST_BYTES[version] > length or not count or length > window.end - offset:
        frame_at(window, offset)
    buffer, at = window.span(offset, length)
    if len(buffer) - at < length:
        raise BadRecord(offset, "the file ends inside a record")
    name_at = at + FRAME_BYTES
    body_from = part_from + part_bytes(version, count, buffer, at + part_from)
    if body_from > length:
        raise BadRecord(offset, "the record's lengths disagree")
    body = buffer[at + body_from : at + length]
    head = buffer[at + _PREFIX.size : at + body_from]
    if crc32c_extend(crc32c(head), body) ^ salt ^ MARKS[version] != checksum:
        raise BadRecord(offset, "the checksum does not match")
    try:
        record = Record(
            Term(term),
            MessageId(base_id),
            TimeTick(base_tick),
            MessageId(confirmed),
            kind,
            buffer[name_at : name_at + name].decode(),
            sizes_of(count).unpack_from(buffer, name_at + name),
            body,
            part_at(buffer, at + part_from) if version in IN_TXN else None,
            batch_at(buffer, at + part_from, version, count) if version in OF_BATCHES else None,
        )
    except (BadPart, UnicodeDecodeError, struct.error) as bad:
        # The checksum matches, yet no writer of ours has made it.
        raise BadRecord(offset, str(bad)) from None
    return Stored(offset, offset + length, group_id, record)


def length_at(window: Window, offset: int) -> int:
    """The record length stored at `offset`, not verified."""
    buffer, at = window.span(offset, FRAME_BYTES)
    return int.from_bytes(buffer[at + 8 : at + 12], "little")


def salt_of(window: Window, offset: int) -> int:
    """The salt with which the record at `offset` is intact, for a segment without header."""
    frame = frame_at(window, offset)
    buffer, at = window.span(offset, frame.length)
    # Those of later forms, which are no records, have the mark 0.
    mark = MARKS.get(_VERSIONS.get(buffer[at : at + 8], 0), 0)
    return int(crc32c(buffer[at + _PREFIX.size : at + frame.length])) ^ frame.checksum ^ mark


def _meet_gap(window: Window, offset: int, salt: int) -> None:
    """Raise GapMet for an intact gap, BadRecord for a damaged one."""
    buffer, at = window.span(offset, GAP_BYTES)
    if not is_gap(buffer, at):
        return
    gap = decode_gap(buffer, at, offset, salt)
    if gap is None or gap.end > window.end:
        raise BadRecord(offset, "the gap's checksum does not match")
    raise GapMet(gap)


def _meet_thinned(window: Window, offset: int, salt: int) -> None:
    """Raise ThinnedMet for an intact thinned record, BadRecord for a damaged one."""
    buffer, at = window.span(offset, FRAME_BYTES)
    if not is_thinned(buffer, at):
        return
    frame = frame_at(window, offset)
    buffer, at = window.span(offset, frame.length)
    thinned = decode_thinned(buffer, at, offset, salt)
    if thinned is None:
        raise BadRecord(offset, "the checksum of the thinned record does not match")
    raise ThinnedMet(thinned)


def _refuse_newer(window: Window, offset: int, salt: int) -> None:
    """Raise UnknownFormat for an intact record of a newer version: that is no damage."""
    buffer, at = window.span(offset, FRAME_BYTES)
    if len(buffer) - at < _PREFIX.size:
        return
    magic, version, length, checksum = _PREFIX.unpack_from(buffer, at)
    if magic != MAGIC or version == 0 or version in MARKS or length > window.end - offset:
        return
    buffer, at = window.span(offset, length)
    if crc32c(buffer[at + _PREFIX.size : at + length]) ^ salt == checksum:
        raise UnknownFormat(window.path, version, max(MARKS))
