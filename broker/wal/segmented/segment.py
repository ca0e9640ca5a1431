"""The name and header of a segment file, and a segment as the log sees it.

The header has the first 4 KiB for itself, so that no later write touches its page:

    magic 8 | version u32 | CRC-32C u32
    term i64 | base id i64 | salt u32
    previous: base id i64, term i64, end i64        the segment before, and where it is sealed
    last tick u64 | last term i64                   of the newest record before this segment
    channel bytes u32 | channel | zeros

A segment whose space was given back is written anew, as its next edition (version 2), which has
behind the fields, before the channel:

    edition: term i64, number i64 | end i64         its name, and the byte where it is sealed

Segments form a chain from the newest to the oldest by `previous`. A file that is not on the chain
was left by a fenced owner; nothing in it was ever acknowledged.
"""

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from google_crc32c import value as crc32c

from broker.model.ids import MessageId, Term, TimeTick
from broker.ports.wal import Corrupt, UnknownFormat
from broker.value import value

HEADER_BYTES = 4096
VERSION = 1
VERSION_EDITION = 2
_MAGIC = b"TideSegm"
_PREFIX = struct.Struct("<8sII")
_FIELDS = struct.Struct("<qqIqqqQqI")
_EDITION = struct.Struct("<qqq")
_CHANNEL_BYTES_MAX = HEADER_BYTES - _PREFIX.size - _FIELDS.size - _EDITION.size


class Edition(NamedTuple):
    """Which rewriting of a segment: the term of the owner that wrote it, and its number there.

    The largest one counts.
    """

    term: int
    number: int


ORIGINAL: Final = Edition(0, 0)


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """Unique: a term has one owner, which never starts two segments at one id.

    Editions of a segment hold the same messages, without those that nobody needs.
    """

    # First, because names compare in this order: the largest is the newest owner's segment.
    term: Term
    base_id: MessageId
    edition: Edition = ORIGINAL

    @property
    def stem(self) -> str:
        stem = f"{self.base_id:020d}-{self.term:010d}"
        if self.edition == ORIGINAL:
            return stem
        return f"{stem}-{self.edition.term:010d}-{self.edition.number:06d}"

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
        parts = stem.split("-")
        if suffix != "log" or len(parts) not in (2, 4) or not all(map(str.isdecimal, parts)):
            return None
        base_id, term, *edition = map(int, parts)
        name = cls(Term(term), MessageId(base_id), Edition(*edition) if edition else ORIGINAL)
        return name if name.log_file == file_name else None

    @property
    def original(self) -> "SegmentName":
        """The name that a segment has in the chain: that of its first edition."""
        return SegmentName(self.term, self.base_id)


@dataclass(frozen=True, slots=True)
class Link:
    """The segment before, and the byte where it is sealed; bytes above are never read."""

    name: SegmentName
    end: int


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header of a segment: itself, and the end of the log before it.

    `end`: where a rewritten segment is sealed. The header behind it knows where the original was.
    """

    channel: str
    name: SegmentName
    salt: int
    previous: Link | None
    last_tick: TimeTick
    last_term: Term
    end: int = 0

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
        version = VERSION
        if self.name.edition != ORIGINAL:
            version, fields = VERSION_EDITION, fields + _EDITION.pack(*self.name.edition, self.end)
        rest = (fields + channel).ljust(HEADER_BYTES - _PREFIX.size, b"\0")
        return _PREFIX.pack(_MAGIC, version, crc32c(rest)) + rest

    @classmethod
    def decode(cls, data: bytes, file: str) -> Self:
        """Raises UnknownFormat or Corrupt. The version is compared before the checksum."""
        if len(data) < _PREFIX.size:
            raise Corrupt(file, len(data), "the file ends inside its header")
        magic, version, checksum = _PREFIX.unpack_from(data)
        if magic != _MAGIC:
            raise Corrupt(file, 0, "not a segment file: the magic number does not match")
        # Before the checksum, so that a newer format is never reported as damage.
        if version not in (VERSION, VERSION_EDITION):
            raise UnknownFormat(file, version, VERSION_EDITION)
        rest = data[_PREFIX.size : HEADER_BYTES]
        if len(data) < HEADER_BYTES or crc32c(rest) != checksum:
            raise Corrupt(file, 0, "the checksum of the segment's header does not match")
        term, base, salt, before, before_term, end, tick, last, size = _FIELDS.unpack_from(rest)
        channel_at, edition, own_end = _FIELDS.size, ORIGINAL, 0
        if version == VERSION_EDITION:
            by_term, number, own_end = _EDITION.unpack_from(rest, channel_at)
            edition, channel_at = Edition(by_term, number), channel_at + _EDITION.size
        try:
            channel = rest[channel_at : channel_at + size].decode()
        except UnicodeDecodeError:
            raise Corrupt(
                file, 0, "the channel's name in the segment's header is not UTF-8"
            ) from None
        link = Link(SegmentName(Term(before_term), MessageId(before)), end) if before else None
        name = SegmentName(Term(term), MessageId(base), edition)
        return cls(channel, name, salt, link, TimeTick(tick), Term(last), own_end)


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

    @property
    def is_rewritten(self) -> bool:
        return self.name.edition != ORIGINAL


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
