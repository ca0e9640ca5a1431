"""Walks over the records of a segment: finds where a log ends and what lies behind damage."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from broker.ports.files import ReadableFile
from broker.ports.wal import Corrupt
from broker.wal.segmented.index import SparseIndex
from broker.wal.segmented.record_format import (
    MAGIC,
    BadRecord,
    Frame,
    Stored,
    Window,
    frame_at,
    record_at,
)
from broker.wal.segmented.segment import HEADER_BYTES, LogSegment, SegmentHeader

SCAN_CHUNK_BYTES = 1 << 20
OnDamage = Callable[[Corrupt], None]


@dataclass(frozen=True, slots=True)
class SegmentTail:
    """A scanned segment, and the index built on the way."""

    segment: LogSegment
    index: SparseIndex


def refuse(damage: Corrupt) -> None:
    """The default reaction to damage: raise it."""
    raise damage


def scan_tail(
    file: ReadableFile, path: str, header: SegmentHeader, index: SparseIndex, on_damage: OnDamage
) -> SegmentTail:
    """Find the end of a segment that was not sealed: the first bad record.

    A torn group, zeros and leftovers end the log. A bad record that had been durable, proved by a
    good one behind it, is damage: reported to `on_damage`, and skipped when that returns.
    """
    window = Window(file, path, file.size(), SCAN_CHUNK_BYTES)
    tail = LogSegment(
        header.name,
        header.salt,
        HEADER_BYTES,
        header.name.base_id,
        header.last_tick,
        header.last_term,
    )
    while True:
        try:
            stored = _next_in_tail(window, tail)
        except BadRecord as bad:
            behind = _behind_damage(window, bad, tail)
            if behind is None:
                return SegmentTail(tail, index)
            on_damage(Corrupt(path, bad.offset, bad.reason))
            stored = behind
        record = stored.record
        index.add(record.base_id, record.base_tick, stored.offset)
        tail = LogSegment(
            tail.name, tail.salt, stored.end, record.next_id, record.last_tick, record.term
        )


def records_in(
    file: ReadableFile, path: str, segment: LogSegment, on_damage: OnDamage
) -> Iterator[Stored]:
    """The intact records of a sealed segment; each damaged range goes to `on_damage`."""
    window = Window(file, path, segment.end, SCAN_CHUNK_BYTES)
    offset, expected = HEADER_BYTES, int(segment.base_id)
    while offset < segment.end:
        try:
            stored = record_at(window, offset, segment.salt)
            _refuse_gap(stored, expected)
        except BadRecord as bad:
            on_damage(Corrupt(path, bad.offset, bad.reason))
            behind = next_record(window, bad.offset + 1, segment.salt, expected)
            if behind is None:
                return
            stored = behind
        yield stored
        offset, expected = stored.end, stored.record.next_id


def frames_from(window: Window, offset: int, end: int) -> Iterator[tuple[int, Frame]]:
    """Offsets and frames from `offset` on, without verifying checksums; raises Corrupt."""
    expected = None
    while offset < end:
        try:
            frame = frame_at(window, offset)
        except BadRecord as bad:
            raise Corrupt(window.path, bad.offset, bad.reason) from None
        if expected is not None and frame.base_id != expected:
            raise Corrupt(window.path, offset, f"id {frame.base_id} where {expected} belongs")
        yield offset, frame
        offset, expected = offset + frame.length, frame.next_id


def next_record(window: Window, offset: int, salt: int, id_min: int) -> Stored | None:
    """The first intact record at or behind `offset` whose ids start at `id_min` or above."""
    while offset < window.end:
        size = min(SCAN_CHUNK_BYTES, window.end - offset)
        buffer, at = window.span(offset, size)
        found = buffer.find(MAGIC, at, at + size)
        if found < 0:
            # Keeps the last bytes: the magic number may lie across two chunks.
            offset += max(size - len(MAGIC) + 1, 1)
            continue
        offset += found - at
        try:
            stored = record_at(window, offset, salt)
        except BadRecord:
            offset += 1
            continue
        if stored.record.base_id >= id_min:
            return stored
        offset += 1
    return None


def _next_in_tail(window: Window, tail: LogSegment) -> Stored:
    stored = record_at(window, tail.end, tail.salt)
    record = stored.record
    _refuse_gap(stored, tail.next_id)
    if record.term != tail.name.term or record.base_tick <= tail.last_tick:
        raise BadRecord(stored.offset, "the record does not continue the log")
    return stored


def _behind_damage(window: Window, bad: BadRecord, tail: LogSegment) -> Stored | None:
    """The next good record if the bad one before it had been durable; else None."""
    first = stored = next_record(window, bad.offset + 1, tail.salt, tail.next_id)
    while stored is not None:
        # Written after ids up to `group_id` were durable, and those from `next_id` are missing.
        if stored.group_id > tail.next_id:
            return first
        stored = next_record(window, stored.end, tail.salt, stored.record.next_id)
    return None


def _refuse_gap(stored: Stored, expected: int) -> None:
    if stored.record.base_id != expected:
        raise BadRecord(stored.offset, f"id {stored.record.base_id} where {expected} belongs")
