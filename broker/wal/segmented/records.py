"""How one record lies in a segment file: encoding, and decoding that trusts nothing.

Never does I/O beyond the window it is given, and never decides what damage means: that is for
`scan.py`. Layout, little-endian:

    magic 4 | version u32 | length u32 | CRC-32C u32          the first 16 bytes, in every version
    term i64 | base id i64 | base tick u64 | last confirmed i64 | group id i64
    count u32 | kind u32 | vchannel bytes u32
    vchannel | sizes u32 * count | body

`length` counts the whole record. The checksum covers everything behind it and starts from the
segment's salt, so that neither bytes left over from another segment nor a message whose payload
looks like a record can pass for one. `group id` is the next id that was durable when the record
was written: a good record with a larger group id than a bad one before it proves that the bad one
had been durable, so it is damage and not a torn tail.
"""

import struct
from typing import NamedTuple

from google_crc32c import extend as crc32c_extend

from broker.model.ids import MessageId, Term, TimeTick
from broker.model.record import Record
from broker.ports.files import File
from broker.ports.wal import UnknownFormat

MAGIC = b"\xd7TmR"
VERSION = 1
RECORD_BYTES_MAX = 1 << 30
_PREFIX = struct.Struct("<4sIII")
_FIELDS = struct.Struct("<qqQqqIII")
_FRAME = struct.Struct(_PREFIX.format + _FIELDS.format[1:])
FRAME_BYTES = _FRAME.size


class BadRecord(Exception):
    """The bytes at `offset` are no whole, intact record."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset, self.reason = offset, reason


class Frame(NamedTuple):
    """The fixed part of a record, not checked against the checksum."""

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


class Stored(NamedTuple):
    """A record that passed its checksum, and where it lies."""

    offset: int
    end: int
    group_id: int
    record: Record


class Window:
    """A file read in chunks, as if it were one buffer that ends at `end`."""

    def __init__(self, file: File, path: str, end: int, chunk_bytes: int) -> None:
        self.path, self.end = path, end
        self._file, self._chunk_bytes = file, chunk_bytes
        self._start, self._buffer = 0, b""

    def span(self, offset: int, size: int) -> tuple[bytes, int]:
        """A buffer and the place in it where `[offset, offset + size)` lies, cut at `end`."""
        at = offset - self._start
        wanted = min(size, self.end - offset)
        if at < 0 or at + wanted > len(self._buffer):
            reach = max(wanted, min(self._chunk_bytes, self.end - offset))
            self._buffer, self._start, at = self._file.read(offset, max(reach, 0)), offset, 0
        return self._buffer, at


def encode(record: Record, group_id: int, salt: int) -> tuple[bytes, bytes]:
    """The stored form in two parts, so that the body is not copied."""
    name, sizes = record.vchannel.encode(), record.sizes
    fields = b"".join(
        (
            _FIELDS.pack(
                record.term,
                record.base_id,
                record.base_tick,
                record.last_confirmed_id,
                group_id,
                len(sizes),
                record.kind,
                len(name),
            ),
            name,
            struct.pack(f"<{len(sizes)}I", *sizes),
        )
    )
    checksum = crc32c_extend(crc32c_extend(salt, fields), record.body)
    length = _PREFIX.size + len(fields) + len(record.body)
    return _PREFIX.pack(MAGIC, VERSION, length, checksum) + fields, record.body


def encoded_bytes(record: Record) -> int:
    """How long the stored form is."""
    return FRAME_BYTES + len(record.vchannel.encode()) + 4 * len(record.sizes) + len(record.body)


def frame_at(window: Window, offset: int) -> Frame:
    """The fixed part of the record at `offset`; raises BadRecord when it cannot be one."""
    buffer, at = window.span(offset, FRAME_BYTES)
    if len(buffer) - at < FRAME_BYTES or window.end - offset < FRAME_BYTES:
        raise BadRecord(offset, "the file ends inside a record's header")
    magic, version, *fields = _FRAME.unpack_from(buffer, at)
    if magic != MAGIC:
        raise BadRecord(offset, "no record begins here")
    frame = Frame(*fields)
    if version != VERSION:
        raise BadRecord(offset, f"unknown version {version}")
    if frame.length > window.end - offset:
        raise BadRecord(offset, "the record reaches beyond the end")
    if FRAME_BYTES + frame.name_bytes + 4 * frame.messages > frame.length or not frame.messages:
        raise BadRecord(offset, "the record's lengths disagree")
    return frame


def record_at(window: Window, offset: int, salt: int) -> Stored:
    """The intact record at `offset`; raises BadRecord, or UnknownFormat when it is newer."""
    try:
        frame = frame_at(window, offset)
    except BadRecord:
        _refuse_newer(window, offset, salt)
        raise
    buffer, at = window.span(offset, frame.length)
    if len(buffer) - at < frame.length:
        raise BadRecord(offset, "the file ends inside a record")
    name_at = at + FRAME_BYTES
    sizes_at = name_at + frame.name_bytes
    body_at = sizes_at + 4 * frame.messages
    body = buffer[body_at : at + frame.length]
    head = buffer[at + _PREFIX.size : body_at]
    if crc32c_extend(crc32c_extend(salt, head), body) != frame.checksum:
        raise BadRecord(offset, "the checksum does not match")
    record = Record(
        term=Term(frame.term),
        base_id=MessageId(frame.base_id),
        base_tick=TimeTick(frame.base_tick),
        last_confirmed_id=MessageId(frame.last_confirmed_id),
        kind=frame.kind,
        vchannel=buffer[name_at:sizes_at].decode(),
        sizes=struct.unpack_from(f"<{frame.messages}I", buffer, sizes_at),
        body=body,
    )
    return Stored(offset, offset + frame.length, frame.group_id, record)


def _refuse_newer(window: Window, offset: int, salt: int) -> None:
    """A version this program does not know is no damage when its checksum holds."""
    buffer, at = window.span(offset, FRAME_BYTES)
    if len(buffer) - at < _PREFIX.size:
        return
    magic, version, length, checksum = _PREFIX.unpack_from(buffer, at)
    if magic != MAGIC or version in (0, VERSION) or length > window.end - offset:
        return
    buffer, at = window.span(offset, length)
    if crc32c_extend(salt, buffer[at + _PREFIX.size : at + length]) == checksum:
        raise UnknownFormat(window.path, version, VERSION)
