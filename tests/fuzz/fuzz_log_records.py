"""Records of a segment file: damaged, and forged ones whose checksums are right."""

from struct import unpack_from

from google_crc32c import value as crc32c

from broker.model.batch import BatchKeys, BatchPart, OwnProperties
from broker.model.ids import MessageId, Term, TimeTick, TxnId
from broker.model.producer_numbers import ProducerPart
from broker.model.record import Record
from broker.model.txn import TxnPart
from broker.ports.wal import Corrupt, UnknownFormat
from broker.wal.segmented.formats.gap_format import Gap, encode_gap
from broker.wal.segmented.formats.record_parts import MARKS
from broker.wal.segmented.formats.thinned_format import ThinnedSpan, encode_thinned
from broker.wal.segmented.index import SparseIndex
from broker.wal.segmented.record_format import FRAME_BYTES, MAGIC, encode
from broker.wal.segmented.scan import entries_in, scan_tail
from broker.wal.segmented.segment import HEADER_BYTES, LogSegment, SegmentHeader, SegmentName

NAME = SegmentName(Term(1), MessageId(1))
HEADER = SegmentHeader("p", NAME, 0, None, TimeTick(0), Term(0))
_PREFIX_BYTES = 16


class Bytes:
    """A file of bytes that are there."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def size(self) -> int:
        return len(self._data)

    def close(self) -> None: ...


def check(data: bytes) -> None:
    """Both walks over a segment end, and report damage by its own error."""
    for content in (data, forged(data)):
        file = Bytes(bytes(HEADER_BYTES) + content)
        found: list[Corrupt] = []
        try:
            tail = scan_tail(file, "s.log", HEADER, SparseIndex(64), found.append)
            assert HEADER_BYTES <= tail.segment.end <= file.size()
        except UnknownFormat:
            pass
        end = HEADER_BYTES + len(content)
        sealed = LogSegment(NAME, 0, end, MessageId(1 << 62), TimeTick(1), Term(1))
        try:
            for entry in entries_in(file, "s.log", sealed, found.append):
                assert entry.end <= end
        except UnknownFormat:
            pass


def forged(data: bytes) -> bytes:
    """The same records with checksums that match, as one who knows the salt would write them."""
    made = bytearray(data)
    at = data.find(MAGIC)
    while 0 <= at <= len(data) - FRAME_BYTES:
        version, length = unpack_from("<II", data, at + 4)
        if not _PREFIX_BYTES <= length <= len(data) - at:
            at = data.find(MAGIC, at + 1)
            continue
        checksum = int(crc32c(data[at + _PREFIX_BYTES : at + length])) ^ MARKS.get(version, 0)
        made[at + 12 : at + 16] = checksum.to_bytes(4, "little")
        at = data.find(MAGIC, at + length)
    return bytes(made)


def _record(first: int, batch: BatchPart | None = None, txn: TxnPart | None = None) -> bytes:
    tick = TimeTick(100 + first)
    record = Record(
        Term(1), MessageId(first), tick, MessageId(1), 2, "p_1v0", (2, 1), b"abc", txn, batch
    )
    return b"".join(encode(record, first, 0))


_KEYS = BatchKeys((2, 0), b"k")
_OWN = OwnProperties((3, 0), b"own")
_TXN = TxnPart(TxnId(5), 1000, MessageId(1), 2)
_IDS = MessageId(1), MessageId(9)
_TICKS = TimeTick(101), TimeTick(110)
_RUNS = (
    Record(Term(1), MessageId(2), TimeTick(102), MessageId(1), 2, "p_1v0", (1,), b"a", None, None),
    Record(Term(1), MessageId(4), TimeTick(104), MessageId(1), 2, "p_1v0", (1,), b"b", None, None),
)
SEEDS = (
    _record(1) + _record(3),
    _record(1, BatchPart(b"props")) + _record(3, BatchPart(b"", producer=ProducerPart("me", 7))),
    _record(1, BatchPart(b"props", keys=_KEYS, own=_OWN)),
    _record(1, txn=_TXN) + _record(3, BatchPart(b"", keys=_KEYS, own=_OWN), _TXN),
    b"".join(encode_gap(Gap(0, 0, Term(1), *_IDS, *_TICKS), 0)) + _record(9),
    encode_thinned(list(_RUNS), ThinnedSpan(MessageId(1), TimeTick(101), 9), 1, 0),
)
