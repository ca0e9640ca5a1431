"""The async interface of a log in Kafka: one thread writes, reads are on shared threads."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from anyio import to_thread

from broker.model.ids import MessageId, Term, TimeTick
from broker.model.record import Record
from broker.model.retention.dead import Contents, Dead
from broker.model.retention.policy import Retention, SealedSegment
from broker.ports.wal import Judge, LogBounds, LogClosed, WalError, WriterFailed
from broker.wal.kafka.kafka_reader import KafkaReader, SizedRecord
from broker.wal.kafka.kafka_writer import KafkaWriter
from broker.wal.kafka.log_state import TopicSegment
from broker.wal.kafka.offset_search import OffsetSearch
from broker.wal.kafka.partition import Partition
from broker.wal.listed_segments import index_of
from broker.wal.segmented.loop_calls import LoopCalls
from broker.wal.segmented.worker import Worker

T = TypeVar("T")
_PAUSE_EVERY: Final = 256
_PAUSE_S: Final = 0.002
WRITE_ENDS_S: Final = 1.0
"""A close waits so long for the answer to a write that is under way."""
Told = Callable[[WalError | None], None]
"""Is given the newest failure of a log, and None when it works again."""


@dataclass(frozen=True, slots=True)
class OpenedTopic:
    """An open log without its thread."""

    channel: str
    writer: KafkaWriter
    reader: KafkaReader
    search: OffsetSearch
    partition: Partition


class KafkaLog:
    """Implements `ports.wal.Log`. Kafka gives back no space in the middle of a topic."""

    def __init__(self, opened: OpenedTopic, worker: Worker, told: Told) -> None:
        self._channel, self._worker, self._told = opened.channel, worker, told
        self._writer, self._reader = opened.writer, opened.reader
        self._search, self._partition = opened.search, opened.partition
        self._closed = False
        self._ending = threading.Event()

    @property
    def term(self) -> Term:
        return self._writer.term

    @property
    def gives_back(self) -> bool:
        return False

    def bounds(self) -> LogBounds:
        return self._writer.bounds()

    def segments(self) -> Sequence[TopicSegment]:
        return self._writer.view.sealed

    def append(
        self, records: Sequence[Record], when_written: Callable[[], None] | None = None
    ) -> Awaitable[None]:
        self._refuse_closed()
        if when_written is not None:
            # The writer calls it on its thread; acknowledgements belong to the event loop.
            when_written = partial(LoopCalls.of(asyncio.get_running_loop()).put, when_written)
        return self._write(partial(self._writer.append, records, when_written))

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
        first_id = await self._write(partial(self._writer.truncate, before_id, retention, now_ms))
        self._search.forget_below(self._writer.view.needed_from)
        return first_id

    async def seal(self) -> None:
        self._refuse_closed()
        await self._write(self._writer.seal)

    async def contents(self, segment: SealedSegment | None) -> Contents:
        self._refuse_closed()
        found = self._writer.view.active if segment is None else self._sealed(segment)
        if found is None:
            return {}
        return await self._in_steps(found, self._reader.contents)

    async def give_back(self, segment: SealedSegment, dead: Dead) -> int:
        return await self._give_nothing()

    async def look(self, segment: SealedSegment, use: Callable[[Record], bool]) -> bool:
        self._refuse_closed()
        found = self._sealed(segment)
        if found is None:
            return True
        return await self._in_steps(found, lambda records: all(use(it.record) for it in records))

    async def thin(self, segment: SealedSegment, judge: Judge) -> int:
        return await self._give_nothing()

    async def begin_anew(self, first_id: MessageId, removed_tick: TimeTick) -> None:
        self._refuse_closed()
        await self._write(partial(self._writer.begin_anew, first_id, removed_tick))
        self._search.forget_below(self._writer.view.needed_from)
        self._reader.forget()

    async def append_copies(
        self, records: Sequence[Record], until_id: MessageId, until_tick: TimeTick
    ) -> None:
        self._refuse_closed()
        await self._write(partial(self._writer.append_copies, records, until_id, until_tick))

    async def discard(self) -> None:
        """The topic stays, empty: who deletes it would delete that of a newer owner, too."""
        self._refuse_closed()
        await self._write(self._writer.discard)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._ending.set()
        try:
            closing = self._worker.run(self._partition.close)
            while not (await asyncio.wait([closing], timeout=WRITE_ENDS_S))[0]:
                # The answer may be long in coming, and the next owner waits for this one to end.
                # Again, as the thread may have been just before its append.
                self._partition.interrupt()
            await closing
        finally:
            self._worker.stop()

    def statistics(self) -> Mapping[str, int | float]:
        counted = self._writer.counted
        return {
            "groups": counted.groups,
            "records": counted.records,
            "written_bytes": counted.written_bytes,
            "segments_started": counted.segments_started,
            "segments": len(self._writer.view.sealed) + 1,
            "gaps_passed": counted.gaps_passed,
            "known_places": self._search.places,
        }

    async def _give_nothing(self) -> int:
        """Space comes back with the start of the topic alone; a fenced owner is told, as ever."""
        self._refuse_closed()
        await to_thread.run_sync(self._writer.check_owner)
        return 0

    def _write(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run it behind what the log's thread has to do, and tell how it went."""

        def told_of() -> T:
            try:
                done = work()
            except WriterFailed as failure:
                self._told(failure)
                raise
            self._told(None)
            return done

        return self._worker.run(told_of)

    def _sealed(self, segment: SealedSegment) -> TopicSegment | None:
        sealed, first_id = self._writer.view.sealed, self.bounds().first_id
        at = index_of(segment, sealed, first_id, self._channel)
        return None if at is None else sealed[at]

    async def _in_steps(
        self, segment: TopicSegment, use: Callable[[Iterator[SizedRecord]], T]
    ) -> T:
        """Use all records of a segment on a thread, until the log closes or the caller leaves."""
        left = threading.Event()

        def records() -> Iterator[SizedRecord]:
            for number, each in enumerate(self._reader.records(segment)):
                # Appends need the interpreter, too.
                paused = number % _PAUSE_EVERY == 0 and left.wait(_PAUSE_S)
                if paused or self._ending.is_set():
                    raise LogClosed(self._channel)
                yield each

        try:
            return await to_thread.run_sync(lambda: use(records()), abandon_on_cancel=True)
        finally:
            left.set()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise LogClosed(self._channel)
