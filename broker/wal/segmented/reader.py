"""Reads a log: records by id, positions by tick and by size. Synchronous, on any thread.

Each call works on one immutable LogView, so appends, new segments and truncation do not disturb it,
and it never reads above the durable end.

Next: broker/node/scanner.py
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from broker.model.ids import MessageId, TimeTick
from broker.model.record import Record
from broker.ports.files import File
from broker.ports.wal import Corrupt, OutOfRange, UnknownFormat
from broker.wal.segmented.formats.gap_format import GapMet
from broker.wal.segmented.formats.thinned_format import Thinned, ThinnedMet
from broker.wal.segmented.index import SparseIndex
from broker.wal.segmented.log_opening import read_all
from broker.wal.segmented.lru_cache import LruCache
from broker.wal.segmented.record_format import (
    FRAME_BYTES,
    BadRecord,
    Stored,
    Window,
    length_at,
    record_at,
)
from broker.wal.segmented.scan import OnDamage, frames_from, next_record
from broker.wal.segmented.segment import LogSegment, LogView, SegmentName
from broker.wal.segmented.writer import Active, LogPlace, store_index

_PLACES_MAX = 256
T = TypeVar("T")
P = ParamSpec("P")


def _unclaimed() -> None:
    """The default `check`, of a log without a claim."""


class Reader:
    """`view` and `active` return the writer's newest state; `check` raises Fenced."""

    def __init__(
        self,
        channel: str,
        place: LogPlace,
        view: Callable[[], LogView],
        active: Callable[[], Active],
        on_damage: OnDamage,
        check: Callable[[], None] = _unclaimed,
    ) -> None:
        self._channel, self._place = channel, place
        self._view, self._active, self._on_damage = view, active, on_damage
        self._check = check
        self._spacing = place.settings.index_spacing_bytes
        self._open = LruCache[SegmentName, File](place.settings.open_files_max)
        self._indexes = LruCache[SegmentName, SparseIndex](place.settings.indexes_max)
        self._places = LruCache[tuple[SegmentName, int], int](_PLACES_MAX)

    def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        """See `ports.wal.Log.read`."""
        segments, at = self._locate(from_id)
        for segment in segments[at:]:
            start = max(from_id, segment.base_id)
            records = self._with_file(self._read_segment, segment, start, bytes_max)
            # Empty only if the rest of the segment was given back, or is damaged and skipped: the
            # next one follows.
            if records:
                return records
        return []

    def seek_tick(self, tick: TimeTick) -> MessageId:
        """See `ports.wal.Log.seek_tick`."""
        segments = _segments(self._view())
        at = bisect_left(segments, tick, key=lambda s: s.last_tick)
        if at == len(segments):
            return segments[-1].next_id
        segment = segments[at]
        return self._with_file(self._seek_segment, segment, tick)

    def advance(self, from_id: MessageId, until_id: MessageId, bytes_max: int) -> MessageId:
        """See `ports.wal.Log.advance`."""
        segments, at = self._locate(from_id)
        reached, left = from_id, bytes_max
        while at < len(segments) and reached < until_id and (left > 0 or reached == from_id):
            segment = segments[at]
            must_move = reached == from_id
            reached, left = self._with_file(
                self._advance_segment, segment, reached, left, must_move
            )
            if reached < segment.next_id:
                break
            at += 1
        return min(reached, until_id)

    def forget(self, segments: Sequence[LogSegment]) -> None:
        """Close files and drop indexes of removed segments."""
        for segment in segments:
            self._open.drop(segment.name)
            self._indexes.drop(segment.name)

    def keep_index(self, segment: LogSegment, index: SparseIndex) -> None:
        """Cache the index of a segment that was just sealed."""
        self._indexes.put(segment.name, index)

    def close(self) -> None:
        self._open.clear()
        self._indexes.clear()

    @property
    def open_files(self) -> int:
        return len(self._open)

    def _locate(self, from_id: MessageId) -> tuple[tuple[LogSegment, ...], int]:
        view = self._view()
        next_id = view.active.next_id
        if not view.first_id <= from_id <= next_id:
            raise OutOfRange(self._channel, from_id, view.first_id, next_id)
        segments = _segments(view)
        at = bisect_right(segments, from_id, key=lambda s: s.base_id) - 1
        return segments, at if from_id < next_id else len(segments)

    def _with_file(
        self,
        use: Callable[Concatenate[File, LogSegment, P], T],
        segment: LogSegment,
        *args: P.args,
        **named: P.kwargs,
    ) -> T:
        try:
            return use(self._file(segment.name), segment, *args, **named)
        except FileNotFoundError:
            # Removed since this call took its view, by truncation or for a newer edition.
            view = self._view()
            if segment.base_id < view.first_id:
                next_id = view.active.next_id
                asked, first_id = segment.base_id, view.first_id
                raise OutOfRange(self._channel, asked, first_id, next_id) from None
            edition = _edition_in(view, segment)
            if edition is None:
                self._check()  # a new owner removes files that its own view does not need
                missing = Corrupt(self._path(segment.name), 0, "the segment file is missing")
                self._on_damage(missing)
                raise missing from None
        # Each edition is newer than the one before, so this ends.
        return self._with_file(use, edition, *args, **named)

    def _read_segment(
        self, file: File, segment: LogSegment, from_id: MessageId, bytes_max: int
    ) -> Sequence[Record]:
        offset = self._places.find((segment.name, from_id))
        # Without a known place the read starts at an index entry, up to one spacing too early.
        slack = FRAME_BYTES + (0 if offset else self._spacing)
        window = Window(file, self._path(segment.name), segment.end, bytes_max + slack)
        if offset is None:
            offset = self._start_of(window, segment, from_id)
        records, left = list[Record](), bytes_max
        while offset < segment.end:
            # The length is not verified yet. If it is damaged this read ends early, no more.
            if records and length_at(window, offset) > left:
                break
            try:
                stored = self._record(window, offset, segment, from_id)
            except GapMet as met:
                offset, from_id = met.gap.end, max(from_id, met.gap.next_id)
                continue
            except ThinnedMet as met:
                thinned = met.thinned
                records += [it for it in thinned.records if it.next_id > from_id]
                left -= thinned.end - offset
                offset, from_id = thinned.end, max(from_id, thinned.next_id)
                continue
            except (Corrupt, UnknownFormat):
                if not records:
                    raise
                break  # deliver the good records; the next read reports the damage
            if stored is None:
                break
            records.append(stored.record)
            left -= stored.end - offset
            offset, from_id = stored.end, stored.record.next_id
        # A consumer that catches up asks for this id next: it then needs no index lookup.
        self._places.put((segment.name, from_id), offset)
        return records

    def _start_of(self, window: Window, segment: LogSegment, message_id: MessageId) -> int:
        offset = self._index(segment).offset_of_id(message_id)
        try:
            for at, frame in frames_from(window, offset, segment.end):
                if frame.next_id > message_id:
                    return at
        except Corrupt as damage:
            return damage.offset
        return segment.end

    def _record(
        self, window: Window, offset: int, segment: LogSegment, expected: MessageId
    ) -> Stored | None:
        try:
            stored = record_at(window, offset, segment.salt)
            if not stored.record.base_id <= expected < stored.record.next_id:
                raise BadRecord(offset, f"id {stored.record.base_id} where {expected} belongs")
            return stored
        except BadRecord as bad:
            # Raises, unless damage is to be skipped.
            self._on_damage(Corrupt(window.path, bad.offset, bad.reason))
            behind = next_record(window, offset + 1, segment.salt, expected)
            if isinstance(behind, Thinned):
                raise ThinnedMet(behind) from None
            return behind

    def _seek_segment(self, file: File, segment: LogSegment, tick: TimeTick) -> MessageId:
        window = Window(file, self._path(segment.name), segment.end, self._spacing)
        # Checksums are not verified for a position; reading the record there does that.
        start = self._index(segment).offset_of_tick(tick)
        for _, frame in frames_from(window, start, segment.end):
            if frame.base_tick + frame.messages > tick and not frame.is_gap:
                return MessageId(frame.base_id + max(0, tick - frame.base_tick))
        return segment.next_id

    def _advance_segment(
        self, file: File, segment: LogSegment, from_id: MessageId, bytes_max: int, must_move: bool
    ) -> tuple[MessageId, int]:
        window = Window(file, self._path(segment.name), segment.end, self._spacing)
        start = self._start_of(window, segment, from_id)
        if segment.end - start <= bytes_max:
            return segment.next_id, bytes_max - (segment.end - start)
        offset = max(self._index(segment).offset_below(start + bytes_max), start)
        reached = from_id
        for at, frame in frames_from(window, offset, segment.end):
            reached = max(MessageId(frame.base_id), from_id)
            end = at + frame.length
            if end - start > bytes_max:
                if must_move and reached == from_id:
                    return MessageId(frame.next_id), 0
                return reached, 0
            reached = MessageId(frame.next_id)
        return reached, 0

    def _index(self, segment: LogSegment) -> SparseIndex:
        active = self._active()
        if active.header.name == segment.name:
            return active.index
        index = self._indexes.find(segment.name)
        if index is None:
            index = self._load_index(segment)
            self._indexes.put(segment.name, index)
        return index

    def _load_index(self, segment: LogSegment) -> SparseIndex:
        try:
            data = read_all(self._place.files, f"{self._place.folder}/{segment.name.index_file}")
        except FileNotFoundError:
            data = b""
        decoded = SparseIndex.decode(data, segment.name, segment.salt, self._spacing)
        # The header behind a segment decides where it ends; an index for another end is wrong.
        if decoded is not None and decoded[1].end == segment.end:
            return decoded[0]
        return self._rebuild_index(segment)

    def _rebuild_index(self, segment: LogSegment) -> SparseIndex:
        index = SparseIndex(self._spacing)
        window = Window(
            self._file(segment.name), self._path(segment.name), segment.end, self._spacing
        )
        try:
            for offset, frame in frames_from(window, index.offset_of_id(0), segment.end):
                index.add(frame.base_id, frame.base_tick, offset)
        except Corrupt:
            return index  # reads behind the damage start from the last entry before it
        try:
            store_index(self._place, index, segment)
        except OSError:
            pass  # reads must work on a full disk
        return index

    def _file(self, name: SegmentName) -> File:
        file = self._open.find(name)
        if file is None:
            # Two threads may open it at once. The file that is not cached closes after its read.
            file = self._place.files.open(self._path(name))
            self._open.put(name, file)
            # It may have been removed since: an open file keeps its space.
            if all(it.name != name for it in _segments(self._view())):
                self._open.drop(name)
        return file

    def _path(self, name: SegmentName) -> str:
        return f"{self._place.folder}/{name.log_file}"


def _edition_in(view: LogView, segment: LogSegment) -> LogSegment | None:
    """Another edition of a segment, by which the view has replaced it."""
    for each in _segments(view):
        if each.base_id == segment.base_id and each.name != segment.name:
            return each
    return None


def _segments(view: LogView) -> tuple[LogSegment, ...]:
    return (*view.sealed, view.active)
