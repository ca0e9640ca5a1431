"""The name and header of a segment file, and a segment as the log sees it.

The header has the first 4 KiB for itself, so that no later write touches its page:

    magic 8 | version u32 | CRC-32C u32
    term i64 | base id i64 | salt u32
    previous: base id i64, term i64, end i64        the segment before, and where it is sealed
    last tick u64 | last term i64                   of the newest record before this segment
    channel bytes u32 | channel | zeros

Segments form a chain from the newest to the oldest by `previous`. A file that is not on the chain
was left by a fenced owner; nothing in it was ever acknowledged.
"""

import struct
from dataclasses import dataclass
from typing import Self

from google_crc32c import value as crc32c

from broker.model.ids import MessageId, Term, TimeTick
from broker.ports.wal import Corrupt, UnknownFormat
from broker.value import value

HEADER_BYTES = 4096
VERSION = 1
_MAGIC = b"TideSegm"
_PREFIX = struct.Struct("<8sII")
_FIELDS = struct.Struct("<qqIqqqQqI")
_CHANNEL_BYTES_MAX = HEADER_BYTES - _PREFIX.size - _FIELDS.size


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """Unique: a term has one owner, which never starts two segments at one id."""

    # First, because names compare in this order: the largest is the newest owner's segment.
    term: Term
    base_id: MessageId

    @property
    def stem(self) -> str:
        return f"{self.base_id:020d}-{self.term:010d}"

    @property
    def log_file(self) -> str:
        return self.stem + ".log"

    @property
    def index_file(self) -> str:
        return self.stem + ".index"

    @classmethod
    def of(cls, file_name: str) -> Self | None:
        """Parse a file name; None when it is not a segment file."""
        stem, _, suffix = file_name.partition(".")
        base_id, _, term = stem.partition("-")
        if suffix != "log" or not (base_id.isdecimal() and term.isdecimal()):
            return None
        name = cls(Term(int(term)), MessageId(int(base_id)))
        return name if name.log_file == file_name else None


@dataclass(frozen=True, slots=True)
class Link:
    """The segment before, and the byte where it is sealed; bytes above are never read."""

    name: SegmentName
    end: int


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header of a segment: itself, and the end of the log before it."""

    channel: str
    name: SegmentName
    salt: int
    previous: Link | None
    last_tick: TimeTick
    last_term: Term

    def encode(self) -> bytes:
        channel = self.channel.encode()
        if len(channel) > _CHANNEL_BYTES_MAX:
            raise ValueError(f"channel name of {len(channel)} bytes; limit {_CHANNEL_BYTES_MAX}")
        link = self.previous
        fields = _FIELDS.pack(
            self.name.term,
            self.name.base_id,
            self.salt,
            link.name.base_id if link else 0,
            link.name.term if link else 0,
            link.end if link else 0,
            self.last_tick,
            self.last_term,
            len(channel),
        )
        rest = (fields + channel).ljust(HEADER_BYTES - _PREFIX.size, b"\0")
        return _PREFIX.pack(_MAGIC, VERSION, crc32c(rest)) + rest

    @classmethod
    def decode(cls, data: bytes, file: str) -> Self:
        """Raises UnknownFormat or Corrupt. The version is compared before the checksum."""
        if len(data) < _PREFIX.size:
            raise Corrupt(file, len(data), "the file ends inside its header")
        magic, version, checksum = _PREFIX.unpack_from(data)
        if magic != _MAGIC:
            raise Corrupt(file, 0, "not a segment file: the magic number does not match")
        # Before the checksum, so that a newer format is never reported as damage.
        if version != VERSION:
            raise UnknownFormat(file, version, VERSION)
        rest = data[_PREFIX.size : HEADER_BYTES]
        if len(data) < HEADER_BYTES or crc32c(rest) != checksum:
            raise Corrupt(file, 0, "the checksum of the segment's header does not match")
        term, base, salt, before, before_term, end, tick, last, size = _FIELDS.unpack_from(rest)
        channel = rest[_FIELDS.size : _FIELDS.size + size].decode()
        link = Link(SegmentName(Term(before_term), MessageId(before)), end) if before else None
        name = SegmentName(Term(term), MessageId(base))
        return cls(channel, name, salt, link, TimeTick(tick), Term(last))


@value
class LogSegment:
    """The durable part of a segment: bytes [HEADER_BYTES, end), ids [base_id, next_id)."""

    name: SegmentName
    salt: int
    end: int
    next_id: MessageId
    last_tick: TimeTick
    last_term: Term

    @property
    def base_id(self) -> MessageId:
        return self.name.base_id

    @property
    def size_bytes(self) -> int:
        return self.end - HEADER_BYTES


@value
class LogView:
    """An immutable view of the durable log. The writer replaces it; readers keep theirs."""

    sealed: tuple[LogSegment, ...]
    sealed_bytes: int
    active: LogSegment
    removed_tick: TimeTick = TimeTick(0)
    """Of the newest record before the oldest segment."""

    @property
    def first_id(self) -> MessageId:
        return self.sealed[0].base_id if self.sealed else self.active.base_id
