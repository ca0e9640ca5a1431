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

Of a compressed body the sizes are those of the messages before compression. Producer bytes 0: the
batch has no sequence number. A codec not yet in `Codec` needs a new version.

Next: broker/wal/segmented/os_files.py
"""

import struct
from functools import lru_cache
from typing import NamedTuple

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from broker.model.batch import (
    NO_KEYS,
    NOTHING_OWN,
    BatchKeys,
    BatchPart,
    Codec,
    OwnProperties,
)
from broker.model.ids import MessageId, Term, TimeTick, TxnId
from broker.model.producer_numbers import ProducerPart
from broker.model.record import Record
from broker.model.txn import TxnPart
from broker.ports.files import ReadableFile
from broker.ports.wal import UnknownFormat

MAGIC = b"\xd7TmR"
VERSION = 1
VERSION_IN_TXN = 2
VERSION_BATCH = 3
VERSION_BATCH_IN_TXN = 4
VERSION_OWN = 5
VERSION_OWN_IN_TXN = 6
_PREFIX = struct.Struct("<4sIII")
_FIELDS = struct.Struct("<qqQqqIII")
_FRAME = struct.Struct(_PREFIX.format + _FIELDS.format[1:])
FRAME_BYTES = _FRAME.size
_TXN = struct.Struct("<QqqQ")
_BATCH = struct.Struct("<IIIIIq")
_OWN = struct.Struct("<I")
# The checksum of every later version must have the mark 0, and its version inside the covered bytes
# (as `_LENGTH_MARKS`): a release that does not know the version can verify the checksum then, and
# refuses the log. Otherwise it takes the record for a torn tail, and cuts off durable messages.
_MARKS = {
    VERSION: 0,
    VERSION_IN_TXN: 0x54784E32,
    VERSION_BATCH: 0x42617433,
    VERSION_BATCH_IN_TXN: 0x42547834,
    VERSION_OWN: 0,
    VERSION_OWN_IN_TXN: 0,
}
# XORed with the length of the vchannel. Under another version it is at least 16 MiB too large.
_LENGTH_MARKS = {version: version << 24 if version >= VERSION_OWN else 0 for version in _MARKS}
_IN_TXN = (VERSION_IN_TXN, VERSION_BATCH_IN_TXN, VERSION_OWN_IN_TXN)
_OF_BATCHES = (VERSION_BATCH, VERSION_BATCH_IN_TXN, VERSION_OWN, VERSION_OWN_IN_TXN)
_WITH_OWN = (VERSION_OWN, VERSION_OWN_IN_TXN)
_CODECS = frozenset(Codec)
# Magic number and version as one key: one look-up for every record that is read.
_VERSIONS = {MAGIC + struct.pack("<I", version): version for version in _MARKS}


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


class Stored(NamedTuple):
    """A record that passed its checksum, with its place in the file."""

    offset: int
    end: int
    group_id: int
    record: Record


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
    version, part = _version_of(record), record.txn
    fields = _fields_of(len(name), len(sizes)).pack(
        record.term,
        record.base_id,
        record.base_tick,
        record.last_confirmed_id,
        group_id,
        len(sizes),
        record.kind,
        len(name) ^ _LENGTH_MARKS[version],
        name,
        *sizes,
    )
    if part is not None:
        fields += _TXN.pack(part.id, part.keepalive_ms, part.begin_id, part.bodies)
    if record.batch is not None:
        fields += _encode_batch(record.batch)
    checksum = crc32c_extend(crc32c(fields), body) ^ salt ^ _MARKS[version]
    length = _PREFIX.size + len(fields) + len(body)
    # Two parts: a large body goes to the disk without a copy.
    return _PREFIX.pack(MAGIC, version, length, checksum) + fields, body


def _version_of(record: Record) -> int:
    if record.batch is None:
        return VERSION if record.txn is None else VERSION_IN_TXN
    if record.batch.own.sizes:
        return VERSION_OWN if record.txn is None else VERSION_OWN_IN_TXN
    return VERSION_BATCH if record.txn is None else VERSION_BATCH_IN_TXN


def _encode_batch(part: BatchPart) -> bytes:
    producer, sequence = b"", 0
    if part.producer is not None:
        producer, sequence = part.producer.producer.encode(), part.producer.sequence
    keys = part.keys
    lengths = len(part.properties), len(keys.sizes), len(keys.body), len(producer)
    head = _BATCH.pack(part.codec, *lengths, sequence)
    key_sizes = _sizes_of(len(keys.sizes)).pack(*keys.sizes)
    own = part.own
    if not own.sizes:
        return b"".join((head, part.properties, producer, key_sizes, keys.body))
    own_sizes = _sizes_of(len(own.sizes)).pack(*own.sizes)
    head += _OWN.pack(len(own.body))
    return b"".join((head, part.properties, producer, key_sizes, keys.body, own_sizes, own.body))


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
    if version not in _MARKS:
        raise BadRecord(offset, f"unknown version {version}")
    frame = Frame(*fields)
    frame = frame._replace(name_bytes=frame.name_bytes ^ _LENGTH_MARKS[version])
    if frame.length > window.end - offset:
        raise BadRecord(offset, "the record reaches beyond the end")
    before_part = FRAME_BYTES + frame.name_bytes + 4 * frame.messages
    if before_part + _LEAST_BYTES[version] > frame.length or not frame.messages:
        raise BadRecord(offset, "the record's lengths disagree")
    return frame


def record_at(window: Window, offset: int, salt: int) -> Stored:
    """The intact record at `offset`; raises BadRecord, or UnknownFormat when it is newer."""
    buffer, at = window.span(offset, FRAME_BYTES)
    version = _VERSIONS.get(buffer[at : at + 8], 0)
    if len(buffer) - at < FRAME_BYTES or not version:
        _refuse_newer(window, offset, salt)
        # Not a record: this raises the precise reason, which the fast path above does not work out.
        frame_at(window, offset)
    _, _, length, checksum, term, base_id, base_tick, confirmed, group_id, count, kind, name = (
        _FRAME.unpack_from(buffer, at)
    )
    name ^= _LENGTH_MARKS[version]
    part_from = FRAME_BYTES + name + 4 * count
    if part_from + _LEAST_BYTES[version] > length or not count or length > window.end - offset:
        frame_at(window, offset)
    buffer, at = window.span(offset, length)
    if len(buffer) - at < length:
        raise BadRecord(offset, "the file ends inside a record")
    name_at = at + FRAME_BYTES
    body_from = part_from + _part_bytes(version, count, buffer, at + part_from)
    if body_from > length:
        raise BadRecord(offset, "the record's lengths disagree")
    body = buffer[at + body_from : at + length]
    head = buffer[at + _PREFIX.size : at + body_from]
    if crc32c_extend(crc32c(head), body) ^ salt ^ _MARKS[version] != checksum:
        raise BadRecord(offset, "the checksum does not match")
    record = Record(
        Term(term),
        MessageId(base_id),
        TimeTick(base_tick),
        MessageId(confirmed),
        kind,
        buffer[name_at : name_at + name].decode(),
        _sizes_of(count).unpack_from(buffer, name_at + name),
        body,
        _part_at(buffer, at + part_from) if version in _IN_TXN else None,
        _batch_at(buffer, at + part_from, offset, version, count)
        if version in _OF_BATCHES
        else None,
    )
    return Stored(offset, offset + length, group_id, record)


def _part_at(buffer: bytes, at: int) -> TxnPart:
    txn_id, keepalive_ms, begin_id, bodies = _TXN.unpack_from(buffer, at)
    return TxnPart(TxnId(txn_id), keepalive_ms, MessageId(begin_id), bodies)


def _batch_at(buffer: bytes, at: int, offset: int, version: int, count: int) -> BatchPart:
    at += _BATCH_FROM[version]
    codec, properties, keys, key_bytes, producer, sequence = _BATCH.unpack_from(buffer, at)
    if codec not in _CODECS:
        raise BadRecord(offset, f"codec {codec} is unknown in version {version}")
    properties_at = at + _BATCH.size + (_OWN.size if version in _WITH_OWN else 0)
    producer_at = properties_at + properties
    keys_at = producer_at + producer
    body_at = keys_at + 4 * keys
    numbered = ProducerPart(buffer[producer_at:keys_at].decode(), sequence) if producer else None
    sizes = _sizes_of(keys).unpack_from(buffer, keys_at)
    own = NOTHING_OWN
    if version in _WITH_OWN:
        (own_bytes,) = _OWN.unpack_from(buffer, at + _BATCH.size)
        own_at = body_at + key_bytes
        own_sizes = _sizes_of(count).unpack_from(buffer, own_at)
        own_at += 4 * count
        own = OwnProperties(own_sizes, buffer[own_at : own_at + own_bytes])
    return BatchPart(
        buffer[properties_at:producer_at],
        Codec(codec),
        BatchKeys(sizes, buffer[body_at : body_at + key_bytes]) if keys else NO_KEYS,
        numbered,
        own,
    )


_BATCH_FROM = {
    VERSION_BATCH: 0,
    VERSION_BATCH_IN_TXN: _TXN.size,
    VERSION_OWN: 0,
    VERSION_OWN_IN_TXN: _TXN.size,
}
_LEAST_BYTES = {
    VERSION: 0,
    VERSION_IN_TXN: _TXN.size,
    VERSION_BATCH: _BATCH.size,
    VERSION_BATCH_IN_TXN: _TXN.size + _BATCH.size,
    VERSION_OWN: _BATCH.size + _OWN.size,
    VERSION_OWN_IN_TXN: _TXN.size + _BATCH.size + _OWN.size,
}


def _part_bytes(version: int, count: int, buffer: bytes, at: int) -> int:
    """The bytes between sizes and body, computed from lengths that are not verified yet."""
    if version not in _OF_BATCHES:
        return _LEAST_BYTES[version]
    start = at + _BATCH_FROM[version]
    _, properties, keys, key_bytes, producer, _ = _BATCH.unpack_from(buffer, start)
    size = _LEAST_BYTES[version] + int(properties + 4 * keys + key_bytes + producer)
    if version in _WITH_OWN:
        (own_bytes,) = _OWN.unpack_from(buffer, start + _BATCH.size)
        size += int(own_bytes) + 4 * count
    return size


def length_at(window: Window, offset: int) -> int:
    """The record length stored at `offset`, not verified."""
    buffer, at = window.span(offset, FRAME_BYTES)
    return int.from_bytes(buffer[at + 8 : at + 12], "little")


def salt_of(window: Window, offset: int) -> int:
    """The salt with which the record at `offset` is intact, for a segment without header."""
    frame = frame_at(window, offset)
    buffer, at = window.span(offset, frame.length)
    mark = _MARKS[_VERSIONS[buffer[at : at + 8]]]
    return int(crc32c(buffer[at + _PREFIX.size : at + frame.length])) ^ frame.checksum ^ mark


@lru_cache(1024)
def _sizes_of(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")


def _refuse_newer(window: Window, offset: int, salt: int) -> None:
    """Raise UnknownFormat for an intact record of a newer version: that is no damage."""
    buffer, at = window.span(offset, FRAME_BYTES)
    if len(buffer) - at < _PREFIX.size:
        return
    magic, version, length, checksum = _PREFIX.unpack_from(buffer, at)
    if magic != MAGIC or version == 0 or version in _MARKS or length > window.end - offset:
        return
    buffer, at = window.span(offset, length)
    if crc32c(buffer[at + _PREFIX.size : at + length]) ^ salt == checksum:
        raise UnknownFormat(window.path, version, max(_MARKS))
