"""Headers and indexes of segment files, and the names of files in a log's folder."""

from google_crc32c import value as crc32c

from broker.model.ids import MessageId, Term, TimeTick
from broker.ports.wal import Corrupt, UnknownFormat
from broker.wal.segmented.index import SparseIndex
from broker.wal.segmented.segment import (
    HEADER_BYTES,
    Edition,
    Link,
    LogSegment,
    SegmentHeader,
    SegmentName,
)
from tests.fuzz.choice import numbered, read_by_first_byte

NAME = SegmentName(Term(3), MessageId(7))


def check(data: bytes) -> None:
    """Damage is Corrupt, UnknownFormat or None, also where the checksum was forged."""
    read_by_first_byte(data, READERS, (Corrupt, UnknownFormat))


def _header(data: bytes) -> None:
    SegmentHeader.decode(data, "s.log")


def _forged_header(data: bytes) -> None:
    rest = data[16:HEADER_BYTES].ljust(HEADER_BYTES - 16, b"\0")
    _header(data[:12] + crc32c(rest).to_bytes(4, "little") + rest)


def _index(data: bytes) -> None:
    found = SparseIndex.decode(data, NAME, 1, 64)
    if found is not None:
        index, _ = found
        for number in (0, 1, 1 << 62):
            index.offset_of_id(number)
            index.offset_of_tick(number)
            index.offset_below(number)


def _forged_index(data: bytes) -> None:
    _index(data[:12] + crc32c(data[16:]).to_bytes(4, "little") + data[16:])


def _file_name(data: bytes) -> None:
    # A file system gives no longer ones.
    text = data[:255].decode("utf-8", "surrogateescape")
    found = SegmentName.of(text)
    assert found is None or found.log_file == text


READERS = (_header, _forged_header, _index, _forged_index, _file_name)

_FIRST = SegmentHeader("p", NAME, 9, None, TimeTick(1), Term(1))
_LATER = SegmentHeader(
    "p_0",
    SegmentName(Term(4), MessageId(9), Edition(5, 1)),
    9,
    Link(NAME, 5000),
    TimeTick(1),
    Term(1),
    6000,
)


def _stored_index() -> bytes:
    index = SparseIndex(1)
    index.add(7, 100, HEADER_BYTES)
    index.add(8, 101, HEADER_BYTES + 100)
    return index.encode(LogSegment(NAME, 1, 5000, MessageId(9), TimeTick(101), Term(3)))


SEEDS = numbered(
    (
        _FIRST.encode()[:128],
        _LATER.encode()[:160],
        _stored_index(),
        NAME.log_file.encode(),
        _LATER.name.log_file.encode(),
    ),
    len(READERS),
)
