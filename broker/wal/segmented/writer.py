"""Writes a log: appends groups durably, starts and seals segments, publishes the durable view.

Synchronous; one thread at a time, except `drop_segments`, which any thread may call.

Next: broker/wal/segmented/record_format.py
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from broker.core.space.removal import expired
from broker.model.ids import TICK_LOGICAL_BITS, MessageId, Term, TimeTick
from broker.model.record import Record
from broker.model.retention.policy import Retention
from broker.ports.files import File, Files
from broker.ports.wal import Fenced, LogBounds, LogClosed, WalError
from broker.wal.append_check import check_append
from broker.wal.segmented.claims import Claim
from broker.wal.segmented.copied_entries import (
    CopiedEntry,
    copied_entries,
    encode_copies,
)
from broker.wal.segmented.emptying import remove_log, remove_messages
from broker.wal.segmented.index import SparseIndex
from broker.wal.segmented.preallocation import PreallocatedFile, Preallocator, commit
from broker.wal.segmented.record_format import encode_group
from broker.wal.segmented.segment import (
    HEADER_BYTES,
    Link,
    LogSegment,
    LogView,
    SegmentHeader,
    SegmentName,
)
from broker.wal.segmented.settings import SegmentedSettings

T = TypeVar("T", bound=CopiedEntry)
Encode = Callable[[Sequence[T], int, int], list[bytes]]


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a log is stored, and the executor for its background work."""

    files: Files
    folder: str
    settings: SegmentedSettings
    background: Executor
    salt: Callable[[], int]


@dataclass(slots=True)
class WriterStatistics:
    """Counted since the log was opened."""

    groups: int = 0
    records: int = 0
    written_bytes: int = 0
    segments_started: int = 0


@dataclass(slots=True)
class Active:
    """The segment that takes appends."""

    header: SegmentHeader
    file: File
    capacity: int
    index: SparseIndex


class Writer:
    """After Fenced or WriterFailed every further append raises the same error.

    A failed write or sync is never repeated: the kernel may mark dirty pages clean after a failed
    sync, so that a second one succeeds although the data is not on disk.
    """

    def __init__(
        self,
        place: LogPlace,
        claim: Claim,
        preallocator: Preallocator,
        active: Active,
        view: LogView,
    ) -> None:
        self._place, self._claim, self._preallocator = place, claim, preallocator
        self._active = active
        self._final: WalError | None = None
        self._view_lock = threading.Lock()
        self._pinned: LogSegment | None = None
        self.view = view
        self.on_sealed: Callable[[LogSegment, SparseIndex], None] = _ignore_sealed
        self.statistics = WriterStatistics(segments_started=1)

    @property
    def active(self) -> Active:
        return self._active

    def append(
        self, records: Sequence[Record], when_written: Callable[[], None] | None = None
    ) -> None:
        """Store the group durably, or raise; see `ports.wal.Log.append`.

        `when_written` is called on this thread.
        """
        if self._final is not None:
            raise self._final
        if not records:
            return
        active = self.view.active
        check_append(records, active.next_id, active.last_tick, self._claim.term)
        self._put(records, encode_group, when_written)

    def append_copies(
        self, records: Sequence[Record], until_id: MessageId, until_tick: TimeTick
    ) -> None:
        """See `ports.switching.log_copies`."""
        if self._final is not None:
            raise self._final
        active = self.view.active
        after = active.next_id, active.last_tick, active.last_term
        entries = copied_entries(records, after, (until_id, until_tick))
        if entries:
            self._put(entries, encode_copies, None)

    def _put(
        self, records: Sequence[T], encoded: Encode[T], when_written: Callable[[], None] | None
    ) -> None:
        try:
            lengths = self._store(records, encoded, when_written)
            # After the sync and before the acknowledgement. If our claim still exists, a newer
            # owner has not yet read the log, so it will find this group below its seal. Checked
            # before the sync, a new owner could seal the log between the check and the sync.
            self._claim.check()
        except (OSError, Fenced) as failure:
            self._final = self._claim.verdict(failure)
            raise self._final from failure
        self._publish(records, lengths)
        self._prepare_next()

    def bounds(self) -> LogBounds:
        """What is durable now."""
        view = self.view
        active = view.active
        return LogBounds(
            first_id=view.first_id,
            next_id=active.next_id,
            last_tick=active.last_tick,
            last_term=active.last_term,
            size_bytes=view.sealed_bytes + active.size_bytes,
            removed_tick=view.removed_tick,
        )

    def drop_segments(
        self, before_id: MessageId, retention: Retention, now_ms: int
    ) -> tuple[LogSegment, ...]:
        """Take segments that retention allows to drop out of the view, oldest first; the caller
        removes their files."""
        # An append may publish a view on the writing thread meanwhile.
        with self._view_lock:
            now = self.view
            allowed = expired(now.sealed, now.active.size_bytes, retention, now_ms)
            gone = 0
            while gone < allowed and now.sealed[gone].next_id <= before_id:
                if now.sealed[gone] is self._pinned:
                    break  # with the next removal
                gone += 1
            kept = now.sealed[gone:]
            removed_tick = now.sealed[gone - 1].last_tick if gone else now.removed_tick
            kept_bytes = sum(s.size_bytes for s in kept)
            self.view = LogView(kept, kept_bytes, now.active, removed_tick)
            return now.sealed[:gone]

    def pin(self, segment: LogSegment) -> bool:
        """Keep a sealed segment from truncation until `unpin`; False if it is gone already."""
        with self._view_lock:
            found = [it for it in self.view.sealed if it == segment]
            self._pinned = found[0] if found else None
            return bool(found)

    def unpin(self) -> None:
        """Let truncation drop the segment again, or its newest edition."""
        with self._view_lock:
            self._pinned = None

    def adopt_edition(self, pinned: LogSegment, new: LogSegment) -> None:
        """Put the new edition of the pinned segment into the view."""
        with self._view_lock:
            now = self.view
            sealed = tuple(new if it == pinned else it for it in now.sealed)
            sealed_bytes = now.sealed_bytes + new.size_bytes - pinned.size_bytes
            self.view = LogView(sealed, sealed_bytes, now.active, now.removed_tick)

    def seal_old(self, age_ms_max: int, now_ms: int) -> None:
        """Start a new segment when the active one's first message is too old.

        Only sealed segments can be dropped, so without this a quiet log would keep old data.
        Raises WalError, with nothing changed, when there is no space; else as `append`.
        """
        first_tick = self._active.index.first_tick
        if self._final is not None or first_tick is None:
            return
        if now_ms - (first_tick >> TICK_LOGICAL_BITS) <= age_ms_max:
            return
        self._seal_now(self._active.capacity)

    def seal_small(self) -> None:
        """Start a new, small segment, unless the active one is empty; raises as `seal_old`.

        For space that is given back: the next segment must not take the space of the last one.
        """
        if self._final is not None or not self.view.active.size_bytes:
            return
        with suppress(OSError):  # the next opening removes it
            self._preallocator.discard()
        self._seal_now(self._place.settings.opening_bytes)

    def _seal_now(self, capacity: int) -> None:
        try:
            spare = self._preallocator.take(capacity)
        except OSError as failure:
            raise WalError(
                f"{self._claim.channel}: cannot allocate a segment: {failure}"
            ) from failure
        try:
            old, sealed = self._roll(spare)
            self._claim.check()
        except (OSError, Fenced) as failure:
            self._final = self._claim.verdict(failure)
            raise self._final from failure
        self._seal_and_close(old, sealed)  # not in the background: it may be removed next

    def begin_anew(self, first_id: MessageId, removed_tick: TimeTick) -> None:
        """See `ports.switching.log_copies`. Readers must forget what they know of segments."""
        if self._final is not None:
            raise self._final
        try:
            self._preallocator.discard()
            self._active.file.close()
            remove_messages(self._place.files, self._place.folder, self._claim)
            spare = self._preallocator.take(self._place.settings.opening_bytes)
            name = SegmentName(self._claim.term, first_id)
            end = LogSegment(name, 0, HEADER_BYTES, first_id, removed_tick, Term(0))
            self._active, fresh = start_segment(self._place, spare, self._claim, end, None)
            self._claim.check()
        except (OSError, Fenced) as failure:
            self._final = self._claim.verdict(failure)
            raise self._final from failure
        with self._view_lock:
            self.view = LogView((), 0, fresh, removed_tick)

    def discard(self) -> None:
        """See `ports.switching.log_copies`."""
        if self._final is not None:
            raise self._final
        self._final = LogClosed(self._claim.channel)
        try:
            self._preallocator.discard()
            remove_log(self._place.files, self._place.folder, self._claim)
        except (OSError, Fenced) as failure:
            raise self._claim.verdict(failure) from failure

    def close(self) -> None:
        """Seal, so that the next opening need not scan. Errors are ignored: then it scans."""
        failed, self._final = self._final, self._final or LogClosed(self._claim.channel)
        try:
            self._preallocator.discard()
            # Only in good order: the next owner takes the end from this index without a scan.
            if failed is None:
                self._claim.check()
                self._seal(self._active, self.view.active)
        except (OSError, Fenced):
            pass
        finally:
            self._active.file.close()
            self._claim.release()

    def _store(
        self, records: Sequence[T], encoded: Encode[T], when_written: Callable[[], None] | None
    ) -> Sequence[int]:
        """Make records durable; return the stored length of each."""
        active = self.view.active
        parts = encoded(records, active.next_id, self._active.header.salt)
        size = sum(map(len, parts))
        # Groups are never split over segments: a sealed segment then ends with a whole group.
        # An empty segment takes even a group larger than itself.
        if active.end + size > self._active.capacity and active.size_bytes:
            capacity = max(self._next_capacity(), HEADER_BYTES + size)
            old, sealed = self._roll(self._preallocator.take(capacity))
            # In the background: this group must not wait for another file.
            self._place.background.submit(self._seal_and_close, old, sealed)
            # Again: checksums contain the salt of the segment.
            parts = encoded(records, active.next_id, self._active.header.salt)
        file, end = self._active.file, self.view.active.end
        if when_written is None:
            # One system call writes and syncs; an early acknowledgement needs two.
            file.write_durable(end, parts)
        else:
            file.write(end, parts)
            self._claim.check()  # before the early acknowledgement too
            when_written()
            file.sync()
        return [len(head) + len(body) for head, body in zip(parts[::2], parts[1::2], strict=True)]

    def _publish(self, records: Sequence[CopiedEntry], lengths: Sequence[int]) -> None:
        active = self.view.active
        end = active.end
        for record, length in zip(records, lengths, strict=True):
            self._active.index.add(record.base_id, record.base_tick, end)
            end += length
        last = records[-1]
        grown = LogSegment(active.name, active.salt, end, last.next_id, last.last_tick, last.term)
        with self._view_lock:  # `drop_segments` may replace the view on another thread
            now = self.view
            self.view = LogView(now.sealed, now.sealed_bytes, grown, now.removed_tick)
        self.statistics.groups += 1
        self.statistics.records += len(records)
        self.statistics.written_bytes += end - active.end

    def _prepare_next(self) -> None:
        """Prepare the next segment once the active one is an eighth full; idle logs never do.

        Early, because zeroing is throttled to leave the disk to appends.
        """
        if self.view.active.end > self._active.capacity // 8:
            self._preallocator.prepare(self._next_capacity())

    def _next_capacity(self) -> int:
        settings = self._place.settings
        return min(self._active.capacity * settings.growth, settings.segment_bytes)

    def _roll(self, spare: PreallocatedFile) -> tuple[Active, LogSegment]:
        """Start the next segment; return the one before, which the caller seals and closes."""
        sealed, old = self.view.active, self._active
        link = Link(sealed.name, sealed.end)
        active, fresh = start_segment(self._place, spare, self._claim, sealed, link)
        # Before the view changes: a reader that sees the segment sealed finds its index.
        self.on_sealed(sealed, old.index)
        self._active = active
        with self._view_lock:
            now = self.view
            sealed_bytes = now.sealed_bytes + sealed.size_bytes
            self.view = LogView((*now.sealed, sealed), sealed_bytes, fresh, now.removed_tick)
        self.statistics.segments_started += 1
        return old, sealed

    def _seal_and_close(self, old: Active, sealed: LogSegment) -> None:
        try:
            self._seal(old, sealed)
        except OSError:
            pass  # a missing index is rebuilt
        finally:
            old.file.close()

    def _seal(self, active: Active, sealed: LogSegment) -> None:
        active.file.truncate(sealed.end)
        store_index(self._place, active.index, sealed)


def _ignore_sealed(_sealed: LogSegment, _index: SparseIndex) -> None:
    """The default `on_sealed`, until there is a reader."""


def start_segment(
    place: LogPlace,
    spare: PreallocatedFile,
    claim: Claim,
    before: LogSegment,
    link: Link | None,
) -> tuple[Active, LogSegment]:
    """Make a preallocated file the new, empty active segment behind `before`, durably."""
    name = SegmentName(claim.term, before.next_id)
    header = SegmentHeader(
        claim.channel, name, place.salt(), link, before.last_tick, before.last_term
    )
    try:
        commit(place.files, place.folder, spare, header)
    except BaseException:
        spare.file.close()
        raise
    index = SparseIndex(place.settings.index_spacing_bytes)
    fresh = LogSegment(
        name, header.salt, HEADER_BYTES, before.next_id, before.last_tick, before.last_term
    )
    return Active(header, spare.file, spare.capacity, index), fresh


def store_index(place: LogPlace, index: SparseIndex, sealed: LogSegment) -> None:
    """Store the index of a sealed segment beside it."""
    place.files.replace(f"{place.folder}/{sealed.name.index_file}", index.encode(sealed))
