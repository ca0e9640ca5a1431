"""Gives space back: writes a sealed segment anew, as its next edition, without dead records.

The new file is whole and durable before it gets its name, and the old one is removed only after
that name is durable and the claim was checked once more. README.md has the crash argument.

Runs on any thread, in steps with pauses, so that appends keep the disk and the interpreter.
"""

import errno
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from broker.model.ids import MessageId
from broker.model.record import Record
from broker.model.retention.dead import Dead, VChannelPart
from broker.ports.files import File
from broker.ports.wal import WalError
from broker.wal.segmented.claims import Claim
from broker.wal.segmented.formats.gap_format import Gap, encode_gap
from broker.wal.segmented.index import SparseIndex
from broker.wal.segmented.log_opening import read_header
from broker.wal.segmented.reader import Reader
from broker.wal.segmented.record_format import FRAME_BYTES, Window
from broker.wal.segmented.scan import (
    SCAN_CHUNK_BYTES,
    Records,
    entries_in,
    frames_from,
    records_in,
    refuse,
)
from broker.wal.segmented.segment import HEADER_BYTES, Edition, LogSegment, SegmentName
from broker.wal.segmented.verdicts import Verdict, left_of, thinned, without
from broker.wal.segmented.writer import LogPlace, Writer, store_index

STEP_BYTES = 256 * 1024
STEP_RECORDS = 200
HEADS_SHARE, DEAD_SHARE = 8, 4
"""Such a part counts of the bytes of a record whose head is read, or that is checked, not copied:
large ones take so much less time than those that are written."""
SMALL_BYTES = 64 * 1024
"""As much is written to any disk, because it frees a segment without live records."""
PAUSE_S = 0.01
"""Between two steps: each works for 1 to 4 ms, so that it takes a quarter of a core at most."""

Pause = Callable[[], None]
"""Called between two steps; may wait, and raises to abort."""


class Editions:
    """Rewrites segments of one open log, one at a time."""

    def __init__(self, place: LogPlace, claim: Claim, writer: Writer, reader: Reader) -> None:
        self._place, self._claim, self._writer, self._reader = place, claim, writer, reader
        self._number = 0
        self._failed: OSError | None = None
        """Of a step behind which an edition may lie that is not in the view."""
        self._busy = threading.Lock()

    def contents(self, segment: LogSegment, pause: Pause) -> dict[str, VChannelPart]:
        """What a segment holds of each vchannel, by the heads of its records. Raises Corrupt."""
        found: dict[str, VChannelPart] = {}
        steps = _Steps(pause)
        file = self._place.files.open(self._path(segment.name))
        try:
            window = Window(file, self._path(segment.name), segment.end, SCAN_CHUNK_BYTES // 4)
            for offset, frame in frames_from(window, HEADER_BYTES, segment.end):
                steps.take(frame.length // HEADS_SHARE)
                if frame.is_gap:
                    continue
                buffer, at = window.span(offset, FRAME_BYTES + frame.name_bytes)
                name = buffer[at + FRAME_BYTES : at + FRAME_BYTES + frame.name_bytes].decode()
                base_id, next_id = MessageId(frame.base_id), MessageId(frame.next_id)
                part, before = VChannelPart(frame.length, base_id, next_id), found.get(name)
                found[name] = part if before is None else before.joined(part)
        finally:
            file.close()
        return found

    def look(self, segment: LogSegment, use: Callable[[Record], bool], pause: Pause) -> bool:
        """Show its records to `use` until that returns False. Raises Corrupt."""
        path, steps = self._path(segment.name), _Steps(pause)
        file = self._place.files.open(path)
        try:
            for entry in records_in(file, path, segment, refuse):
                if not all(map(use, entry.records)):
                    return False
                steps.take(entry.end - entry.offset)
        finally:
            file.close()
        return True

    def give_back(self, segment: LogSegment, dead: Dead, pause: Pause) -> LogSegment | None:
        """`rewrite` without what is dead."""
        return self.rewrite(segment, without(dead), pause)

    def rewrite(self, segment: LogSegment, verdict: Verdict, pause: Pause) -> LogSegment | None:
        """The newest edition of a sealed segment, now with what is left; the old one is gone.

        None if it would not be smaller, or if truncation has dropped the segment before. Raises
        Fenced; Corrupt for a damaged segment, which stays as it is; OSError, after which both
        editions may be there and the old one is read. Then each further call raises it, until the
        log is opened again: each try would leave one more file.
        """
        if not self._busy.acquire(blocking=False):
            raise WalError(f"{self._claim.channel}: a segment is being rewritten already")
        try:
            if self._failed is not None:
                raise self._failed
            if not self._writer.pin(segment):
                return None
            self._claim.check()
            self._number += 1
            edition = Edition(self._claim.term, self._number)
            name = replace(segment.name, edition=edition)
            written = self._write(segment, name, verdict, pause)
            if written is None:
                return None
            self._install(segment, *written)
            self._remove(segment.name)
            self._reader.forget((segment,))
            return written[0]
        finally:
            self._writer.unpin()
            self._busy.release()

    def _write(
        self, segment: LogSegment, name: SegmentName, verdict: Verdict, pause: Pause
    ) -> tuple[LogSegment, SparseIndex] | None:
        """Write the edition durably under a temporary name; None if it would not be smaller."""
        files, temporary = self._place.files, self._temporary(name)
        header = read_header(files, self._path(segment.name), segment.name)
        source = files.open(self._path(segment.name))
        try:
            target = files.open(temporary, create=True)
            try:
                copy = _Copy(source, target, segment, self._place)
                copy.run(self._path(segment.name), verdict, _Steps(pause))
                if copy.end < segment.end:
                    target.write(0, (replace(header, name=name, end=copy.end).encode(),))
                    target.sync()
            finally:
                target.close()
        except BaseException:
            _remove_if_there(self._place, temporary)
            raise
        finally:
            source.close()
        if copy.end >= segment.end:
            _remove_if_there(self._place, temporary)
            return None
        return replace(segment, name=name, end=copy.end), copy.index

    def _install(self, segment: LogSegment, written: LogSegment, index: SparseIndex) -> None:
        """Give the edition its name, durably, and put it into the view.

        From the rename on nothing removes the edition: a newer owner may read it by then. One that
        does not count here is removed by the next opening.
        """
        files, folder = self._place.files, self._place.folder
        try:
            store_index(self._place, index, written)
            self._claim.check()
        except BaseException:
            _remove_if_there(self._place, self._temporary(written.name))
            _remove_if_there(self._place, f"{folder}/{written.name.index_file}")
            raise
        try:
            files.rename(self._temporary(written.name), self._path(written.name))
            files.sync_folder(folder)
        except OSError as failure:
            # If it was renamed, there is nothing of this name.
            _remove_if_there(self._place, self._temporary(written.name))
            self._failed = failure
            raise
        # If our claim still exists, a newer owner has not listed the folder yet: it will find the
        # edition, and does not need the old file.
        self._claim.check()
        self._writer.adopt_edition(segment, written)

    def _remove(self, name: SegmentName) -> None:
        for file_name in (name.log_file, name.index_file):
            _remove_if_there(self._place, f"{self._place.folder}/{file_name}")

    def _temporary(self, name: SegmentName) -> str:
        return f"{self._place.folder}/{name.stem}.new"

    def _path(self, name: SegmentName) -> str:
        return f"{self._place.folder}/{name.log_file}"


class _Steps:
    """Counts work, and pauses after each step."""

    def __init__(self, pause: Pause) -> None:
        self._pause = pause
        self._bytes = self._records = 0

    def take(self, size: int) -> None:
        self._bytes += size
        self._records += 1
        if self._bytes >= STEP_BYTES or self._records >= STEP_RECORDS:
            self._bytes = self._records = 0
            self._pause()


@dataclass(slots=True)
class _Span:
    """Bytes of the old file that are copied as they are; the salt of both files is the same."""

    start: int
    end: int


class _Copy:
    """Copies the live records of a segment, and puts a gap in the place of each dead run.

    A record of which a part is left is written anew as a thinned one.
    """

    def __init__(self, source: File, target: File, segment: LogSegment, place: LogPlace) -> None:
        self._source, self._target, self._segment = source, target, segment
        self._place = place
        self.index = SparseIndex(place.settings.index_spacing_bytes)
        self.end = HEADER_BYTES
        self._gap: Gap | None = None
        self._span = _Span(0, 0)
        self._out: list[bytes] = []
        self._written = HEADER_BYTES

    def run(self, path: str, verdict: Verdict, steps: _Steps) -> None:
        """Raises Corrupt: what is damaged may be live, so such a segment is left as it is."""
        for entry in entries_in(self._source, path, self._segment, refuse):
            size = entry.end - entry.offset
            if isinstance(entry, Gap):
                self._widen(entry)
            else:
                at = self._gap is not None, self._segment.base_id
                left = left_of(entry, verdict, at)
                self._take(entry, left)
                if left is not None and not left:
                    size //= DEAD_SHARE
            steps.take(size)
        self._take_span()
        self._close_gap()
        self._write_out()

    def _take(self, entry: Records, left: Sequence[Record] | None) -> None:
        if left is None:
            self._keep(entry)
        elif not left:
            self._widen(_gap_of(entry))
        elif (made := thinned(entry, left, self._segment.salt)) is None:
            self._keep(entry)
        else:
            self._close_gap()
            self._take_span()
            self.index.add(entry.base_id, entry.base_tick, self.end)
            self._put(made)

    def _widen(self, gap: Gap) -> None:
        if self._gap is None:
            self._take_span()
        self._gap = gap if self._gap is None else self._gap.joined(gap)

    def _keep(self, stored: Records) -> None:
        self._close_gap()
        if not self._span.end:
            self._span.start = stored.offset
        at = self.end + stored.offset - self._span.start
        self.index.add(stored.base_id, stored.base_tick, at)
        self._span.end = stored.end
        if self._span.end - self._span.start >= STEP_BYTES:
            self._take_span()

    def _take_span(self) -> None:
        size = self._span.end - self._span.start
        if size:
            self._put(self._source.read(self._span.start, size))
        self._span = _Span(0, 0)

    def _close_gap(self) -> None:
        if self._gap is not None:
            for part in encode_gap(self._gap, self._segment.salt):
                self._put(part)
        self._gap = None

    def _put(self, part: bytes) -> None:
        self._out.append(part)
        self.end += len(part)
        if self.end - self._written >= STEP_BYTES:
            self._write_out()

    def _write_out(self) -> None:
        if self.end - self._written > SMALL_BYTES:
            self._refuse_without_room()
        # Durable in portions: one sync of all of it would hold up the next append.
        self._target.write_durable(self._written, self._out)
        self._out, self._written = [], self.end

    def _refuse_without_room(self) -> None:
        free, reserve = self._place.files.free_bytes(), self._place.settings.opening_bytes
        if free < self.end - self._written + reserve:
            text = f"{free} bytes are free, and {reserve} of them are kept for appends"
            raise OSError(errno.ENOSPC, text)


def _gap_of(it: Records) -> Gap:
    return Gap(it.offset, it.end, it.term, it.base_id, it.next_id, it.base_tick, it.last_tick)


def _remove_if_there(place: LogPlace, path: str) -> None:
    with suppress(OSError):  # what is left is removed by the next opening
        place.files.remove(path)
