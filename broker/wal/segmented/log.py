"""The async interface of a segmented log: writes on its own thread, reads on shared threads.

Next: broker/wal/segmented/writer.py
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from anyio import to_thread

from broker.model.ids import MessageId, Term, TimeTick
from broker.model.record import Record
from broker.model.retention.dead import Contents, Dead
from broker.model.retention.policy import Retention, SealedSegment
from broker.ports.wal import Judge, LogBounds, LogClosed, WalError
from broker.wal.listed_segments import index_of, nothing_behind
from broker.wal.segmented.claims import Claim
from broker.wal.segmented.editions import PAUSE_S, Editions, Pause
from broker.wal.segmented.log_opening import FIRST_SUFFIX, mark_name
from broker.wal.segmented.loop_calls import LoopCalls
from broker.wal.segmented.reader import Reader
from broker.wal.segmented.segment import LogSegment
from broker.wal.segmented.verdicts import left_by
from broker.wal.segmented.worker import Worker
from broker.wal.segmented.writer import LogPlace, Writer

T = TypeVar("T")


class _Rewrite(Protocol):
    def __call__(self, segment: LogSegment, *, pause: Pause) -> LogSegment | None: ...


class SegmentedLog:
    """Implements `ports.wal.Log`."""

    def __init__(
        self, place: LogPlace, claim: Claim, writer: Writer, reader: Reader, worker: Worker
    ) -> None:
        self._place, self._claim = place, claim
        self._writer, self._reader, self._worker = writer, reader, worker
        self._editions = Editions(place, claim, writer, reader)
        self._closed = False
        self._unremoved: tuple[LogSegment, ...] = ()
        """Not in the view any more; their files are there still."""
        self._ending = threading.Event()

    @property
    def term(self) -> Term:
        return self._claim.term

    @property
    def gives_back(self) -> bool:
        return True

    def bounds(self) -> LogBounds:
        return self._writer.bounds()

    def segments(self) -> Sequence[LogSegment]:
        return self._writer.view.sealed

    def append(
        self, records: Sequence[Record], when_written: Callable[[], None] | None = None
    ) -> Awaitable[None]:
        self._refuse_closed()
        if when_written is not None:
            # The writer calls it on its thread; acknowledgements belong to the event loop.
            when_written = partial(LoopCalls.of(asyncio.get_running_loop()).put, when_written)
        return self._worker.run(partial(self._writer.append, records, when_written))

    async def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        self._refuse_closed()
        return await to_thread.run_sync(self._reader.read, from_id, bytes_max)

    async def seek_tick(self, tick: TimeTick) -> MessageId:
        self._refuse_closed()
        bounds = self.bounds()
        if tick > bounds.last_tick:
            return bounds.next_id
        return await to_thread.run_sync(self._reader.seek_tick, tick)

    async def advance(self, from_id: MessageId, until_id: MessageId, bytes_max: int) -> MessageId:
        self._refuse_closed()
        return await to_thread.run_sync(self._reader.advance, from_id, until_id, bytes_max)

    async def truncate(self, before_id: MessageId, retention: Retention, now_ms: int) -> MessageId:
        self._refuse_closed()
        self._claim.check()  # a fenced owner must not remove files of the log's new owner
        if retention.age_ms_max:
            # Before segments are chosen: only sealed ones can be dropped.
            await self._worker.run(partial(self._writer.seal_old, retention.age_ms_max, now_ms))
        # With those that could not be removed before.
        gone = (*self._unremoved, *self._writer.drop_segments(before_id, retention, now_ms))
        if gone:
            self._unremoved = gone
            # They have left the view already, so no new read finds them. A running one keeps its
            # open file, or gets OutOfRange.
            self._reader.forget(gone)
            try:
                await to_thread.run_sync(remove_segments, self._place, gone)
            except OSError as failure:
                channel = self._claim.channel
                raise WalError(f"{channel}: cannot remove segments: {failure}") from failure
            self._unremoved = ()
        return self.bounds().first_id

    async def seal(self) -> None:
        self._refuse_closed()
        await self._worker.run(self._writer.seal_small)

    async def contents(self, segment: SealedSegment | None) -> Contents:
        self._refuse_closed()
        found = self._writer.view.active if segment is None else self._sealed(segment)
        if found is None:
            return {}
        return await self._in_steps(partial(self._editions.contents, found))

    async def give_back(self, segment: SealedSegment, dead: Dead) -> int:
        self._refuse_closed()
        return await self._rewritten(segment, partial(self._editions.give_back, dead=dead))

    async def look(self, segment: SealedSegment, use: Callable[[Record], bool]) -> bool:
        self._refuse_closed()
        found = self._sealed(segment)
        return found is None or await self._in_steps(partial(self._editions.look, found, use))

    async def thin(self, segment: SealedSegment, judge: Judge) -> int:
        self._refuse_closed()
        rewrite = partial(self._editions.rewrite, verdict=left_by(judge))
        return await self._rewritten(segment, rewrite)

    async def _rewritten(self, segment: SealedSegment, rewrite: _Rewrite) -> int:
        old = self._sealed(segment)
        if old is None:
            return 0
        if not self._writer.view.active.size_bytes:
            raise nothing_behind(self._claim.channel)
        new = await self._in_steps(lambda pause: rewrite(old, pause=pause))
        return 0 if new is None else old.size_bytes - new.size_bytes

    def _sealed(self, segment: SealedSegment) -> LogSegment | None:
        sealed, first_id = self._writer.view.sealed, self.bounds().first_id
        at = index_of(segment, sealed, first_id, self._claim.channel)
        return None if at is None else sealed[at]

    async def _in_steps(self, work: Callable[[Pause], T]) -> T:
        """Run background work on a thread until it ends, the log closes or the caller leaves."""
        left = threading.Event()

        def pause() -> None:
            if left.wait(PAUSE_S) or self._ending.is_set():
                raise LogClosed(self._claim.channel)

        try:
            return await to_thread.run_sync(work, pause, abandon_on_cancel=True)
        except OSError as failure:
            channel = self._claim.channel
            raise WalError(f"{channel}: cannot give back space: {failure}") from failure
        finally:
            left.set()

    async def begin_anew(self, first_id: MessageId, removed_tick: TimeTick) -> None:
        self._refuse_closed()
        await self._worker.run(partial(self._writer.begin_anew, first_id, removed_tick))
        self._reader.close()  # what it knows of segments, whose names may come again

    async def append_copies(
        self, records: Sequence[Record], until_id: MessageId, until_tick: TimeTick
    ) -> None:
        self._refuse_closed()
        work = partial(self._writer.append_copies, records, until_id, until_tick)
        await self._worker.run(work)

    async def discard(self) -> None:
        self._refuse_closed()
        await self._worker.run(self._writer.discard)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._ending.set()
        try:
            await self._worker.run(self._writer.close)
        finally:
            self._worker.stop()
            self._reader.close()

    def statistics(self) -> Mapping[str, int | float]:
        counted = self._writer.statistics
        return {
            "groups": counted.groups,
            "records": counted.records,
            "written_bytes": counted.written_bytes,
            "segments_started": counted.segments_started,
            "segments": len(self._writer.view.sealed) + 1,
            "open_files": self._reader.open_files + 1,
        }

    def _refuse_closed(self) -> None:
        if self._closed:
            raise LogClosed(self._claim.channel)


def remove_segments(place: LogPlace, gone: Sequence[LogSegment]) -> None:
    """Remove segments, after the mark of the new first id is durable: a crash leaves no gap."""
    files, folder, mark = place.files, place.folder, mark_name(gone[-1].next_id)
    _mark_durably(place, f"{folder}/{mark}")
    for segment in gone:
        for name in (segment.name.log_file, segment.name.index_file):
            _remove_if_there(place, f"{folder}/{name}")
    for name in files.list(folder):
        if name.endswith(FIRST_SUFFIX) and name < mark:
            _remove_if_there(place, f"{folder}/{name}")
    files.sync_folder(folder)


def _mark_durably(place: LogPlace, mark: str) -> None:
    made = True
    try:
        # Its name is all that it says, as with claims: created whole or not at all.
        place.files.open(mark, create=True).close()
    except FileExistsError:
        made = False  # a try before this one could not remove every segment
    try:
        place.files.sync_folder(place.folder)
    except OSError:
        if made:
            # What a failed sync left is not synced again: the next try makes another one.
            with suppress(OSError):
                place.files.remove(mark)
        raise


def _remove_if_there(place: LogPlace, path: str) -> None:
    try:
        place.files.remove(path)
    except FileNotFoundError:
        pass  # an index is optional
