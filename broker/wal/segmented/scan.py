"""Walks over the records of a segment: finds where a log ends and what lies behind damage."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from broker.ports.files import ReadableFile
from broker.ports.wal import Corrupt
from broker.wal.segmented.formats.gap_format import Gap, GapMet
from broker.wal.segmented.formats.thinned_format import Thinned, ThinnedMet
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
Records = Stored | Thinned
"""What holds messages: a record, or a thinned one."""
Entry = Records | Gap


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
            stored: Records = _next_in_tail(window, tail)
        except GapMet as met:
            # These two only where the header behind a rewritten segment is lost, and its index.
            tail = _behind(tail, met.gap)
            continue
        except ThinnedMet as met:
            index.add(met.thinned.base_id, met.thinned.base_tick, met.thinned.offset)
            tail = _behind(tail, met.thinned)
            continue
        except BadRecord as bad:
            behind = _behind_damage(window, bad, tail)
            if behind is None:
                return SegmentTail(tail, index)
            on_damage(Corrupt(path, bad.offset, bad.reason))
            stored = behind
        index.add(stored.base_id, stored.base_tick, stored.offset)
        tail = _behind(tail, stored)


def records_in(
    file: ReadableFile, path: str, segment: LogSegment, on_damage: OnDamage
) -> Iterator[Records]:
    """The intact records of a sealed segment; each damaged range goes to `on_damage`."""
    for entry in entries_in(file, path, segment, on_damage):
        if not isinstance(entry, Gap):
            yield entry


def entries_in(
    file: ReadableFile, path: str, segment: LogSegment, on_damage: OnDamage
) -> Iterator[Entry]:
    """`records_in`, with the gaps between them."""
    window = Window(file, path, segment.end, SCAN_CHUNK_BYTES)
    offset, expected = HEADER_BYTES, int(segment.base_id)
    while offset < segment.end:
        try:
            entry = entry_at(window, offset, segment.salt)
            _refuse_jump(entry, expected)
        except BadRecord as bad:
            on_damage(Corrupt(path, bad.offset, bad.reason))
            behind = next_record(window, bad.offset + 1, segment.salt, expected)
            if behind is None:
                return
            entry = behind
        yield entry
        offset, expected = entry.end, entry.next_id


def entry_at(window: Window, offset: int, salt: int) -> Entry:
    """The intact record, thinned record or gap at `offset`; see `record_at`."""
    try:
        return record_at(window, offset, salt)
    except GapMet as gap_met:
        return gap_met.gap
    except ThinnedMet as met:
        return met.thinned


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


def next_record(window: Window, offset: int, salt: int, id_min: int) -> Records | None:
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
            entry = entry_at(window, offset, salt)
        except BadRecord:
            offset += 1
            continue
        if entry.base_id >= id_min and not isinstance(entry, Gap):
            return entry
        offset += 1
    return None


def _next_in_tail(window: Window, tail: LogSegment) -> Stored:
    stored = record_at(window, tail.end, tail.salt)
    record = stored.record
    _refuse_jump(stored, tail.next_id)
    # Older terms are those of a copy of another log.
    in_turn = tail.last_term <= record.term <= tail.name.term
    if not in_turn or record.base_tick <= tail.last_tick:
        raise BadRecord(stored.offset, "the record does not continue the log")
    return stored


def _behind_damage(window: Window, bad: BadRecord, tail: LogSegment) -> Records | None:
    """The next good record if the bad one before it had been durable; else None."""
    first = stored = next_record(window, bad.offset + 1, tail.salt, tail.next_id)
    while stored is not None:
        # Written after ids up to `group_id` were durable, and those from `next_id` are missing.
        if stored.group_id > tail.next_id:
            return first
        stored = next_record(window, stored.end, tail.salt, stored.next_id)
    return None


def _refuse_jump(entry: Entry, expected: int) -> None:
    if entry.base_id != expected:
        raise BadRecord(entry.offset, f"id {entry.base_id} where {expected} belongs")


def _behind(tail: LogSegment, entry: Entry) -> LogSegment:
    return LogSegment(tail.name, tail.salt, entry.end, entry.next_id, entry.last_tick, entry.term)
