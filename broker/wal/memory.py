"""A log that lives in memory: the same contract for tests and the simulator, with faults on demand.

What an owner wrote survives closing and reopening for as long as the `MemoryWal` object. Nothing
here waits, except where `pause` does.
"""

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from broker.model.ids import FIRST_MESSAGE_ID, MessageId, PChannelName, Term, TimeTick
from broker.model.record import Record
from broker.ports.wal import (
    Closed,
    Fenced,
    LogBounds,
    OutOfRange,
    Retention,
    WalError,
    WriterFailed,
)

_RECORD_OVERHEAD_BYTES = 68


class Fault(Enum):
    """How an append fails: its group is gone, or it is there although the writer failed."""

    LOST = auto()
    KEPT = auto()


FaultOf = Callable[[PChannelName, Sequence[Record]], Fault | None]


def no_fault(_channel: PChannelName, _records: Sequence[Record]) -> Fault | None:
    """The default: every append succeeds."""
    return None


async def no_pause() -> None:
    """The default: an append takes no time."""


@dataclass(slots=True)
class _Stored:
    """One channel: segments of records, the last takes appends; `base_id` is the first id."""

    term: Term = Term(0)
    base_id: MessageId = FIRST_MESSAGE_ID
    last_tick: TimeTick = TimeTick(0)
    last_term: Term = Term(0)
    segments: list[list[Record]] = field(default_factory=lambda: [[]])

    def records(self) -> list[Record]:
        return [record for segment in self.segments for record in segment]

    @property
    def next_id(self) -> MessageId:
        last = next((segment[-1] for segment in reversed(self.segments) if segment), None)
        return last.next_id if last else self.base_id

    def store(self, records: Sequence[Record], segment_bytes: int) -> None:
        if sum(map(_size, self.segments[-1])) >= segment_bytes:
            self.segments.append([])
        self.segments[-1].extend(records)
        self.last_tick, self.last_term = records[-1].last_tick, records[-1].term


class MemoryWal:
    """Implements `ports.wal.Wal`.

    `fault_of` is asked before each append. `pause` is awaited while a group is stored but not yet
    acknowledged, so that a new owner can come in between. `is_writable` answers `writable`.
    """

    def __init__(
        self,
        *,
        segment_bytes: int = 1 << 20,
        fault_of: FaultOf = no_fault,
        pause: Callable[[], Awaitable[None]] = no_pause,
        is_writable: Callable[[], bool] = lambda: True,
    ) -> None:
        self.segment_bytes, self.fault_of, self.pause = segment_bytes, fault_of, pause
        self._is_writable = is_writable
        self._channels: dict[PChannelName, _Stored] = {}

    @property
    def name(self) -> str:
        return "rocksmq"

    async def open(self, channel: PChannelName, term: Term) -> "MemoryLog":
        stored = self._channels.setdefault(channel, _Stored())
        if stored.term >= term:
            raise Fenced(channel, term, stored.term)
        stored.term = term
        if stored.segments[-1]:
            stored.segments.append([])
        return MemoryLog(self, channel, term, stored)

    async def writable(self) -> bool:
        return self._is_writable()


class MemoryLog:
    """Implements `ports.wal.Log`."""

    def __init__(self, wal: MemoryWal, channel: PChannelName, term: Term, stored: _Stored) -> None:
        self._wal, self._channel, self._term, self._stored = wal, channel, term, stored
        self._final: WalError | None = None
        self._closed = False
        self._groups = 0
        self._sealed = self._view()

    @property
    def term(self) -> Term:
        return self._term

    def bounds(self) -> LogBounds:
        first_id, next_id, last_tick, last_term, size = self._sealed
        return LogBounds(first_id, next_id, last_tick, last_term, size)

    async def append(self, records: Sequence[Record]) -> None:
        self._refuse_closed()
        if self._final is not None:
            raise self._final
        if not records:
            return
        self._refuse_strays(records)
        if self._stored.term != self._term:
            raise self._fail(Fenced(self._channel, self._term, self._stored.term))
        fault = self._wal.fault_of(self._channel, records)
        if fault is not Fault.LOST:
            self._stored.store(records, self._wal.segment_bytes)
        if fault is not None:
            raise self._fail(WriterFailed(f"{self._channel}: told to fail"))
        await self._wal.pause()
        if self._stored.term != self._term:
            raise self._fail(Fenced(self._channel, self._term, self._stored.term))
        self._groups += 1
        self._sealed = self._view()

    async def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        self._refuse_closed()
        records, at = self._locate(from_id)
        taken, size = list[Record](), 0
        for record in records[at:]:
            size += _size(record)
            if taken and size > bytes_max:
                break
            taken.append(record)
        return taken

    async def seek_tick(self, tick: TimeTick) -> MessageId:
        self._refuse_closed()
        for record in self._visible():
            if record.last_tick >= tick:
                return MessageId(record.base_id + max(0, tick - record.base_tick))
        return self.bounds().next_id

    async def advance(self, from_id: MessageId, until_id: MessageId, bytes_max: int) -> MessageId:
        self._refuse_closed()
        records, at = self._locate(from_id)
        reached, size = from_id, 0
        for record in records[at:]:
            size += _size(record)
            if reached > from_id and (size > bytes_max or record.next_id > until_id):
                break
            reached = record.next_id
        return min(reached, max(until_id, from_id))

    async def truncate(self, before_id: MessageId, retention: Retention, now_ms: int) -> MessageId:
        self._refuse_closed()
        stored = self._stored
        if stored.term != self._term:
            raise Fenced(self._channel, self._term, stored.term)
        sealed = stored.segments[:-1]
        left = sum(map(_size, stored.records()))
        for segment in sealed:
            too_old = 0 < retention.age_ms_max < now_ms - (segment[-1].last_tick >> 18)
            too_big = 0 < retention.bytes_max < left
            if segment[-1].next_id > before_id or not (too_old or too_big):
                break
            left -= sum(map(_size, segment))
            stored.base_id = segment[-1].next_id
            del stored.segments[0]
        self._sealed = self._view()
        return self.bounds().first_id

    async def close(self) -> None:
        self._closed = True

    def statistics(self) -> Mapping[str, int | float]:
        return {"groups": self._groups, "segments": len(self._stored.segments)}

    def _view(self) -> tuple[MessageId, MessageId, TimeTick, Term, int]:
        stored = self._stored
        size = sum(map(_size, stored.records()))
        return stored.base_id, stored.next_id, stored.last_tick, stored.last_term, size

    def _visible(self) -> list[Record]:
        next_id = self.bounds().next_id
        return [record for record in self._stored.records() if record.next_id <= next_id]

    def _locate(self, from_id: MessageId) -> tuple[list[Record], int]:
        records, bounds = self._visible(), self.bounds()
        if not bounds.first_id <= from_id <= bounds.next_id:
            raise OutOfRange(self._channel, from_id, bounds.first_id, bounds.next_id)
        return records, bisect_right(records, from_id, key=lambda r: r.next_id)

    def _refuse_strays(self, records: Sequence[Record]) -> None:
        bounds = self.bounds()
        next_id, last_tick = bounds.next_id, bounds.last_tick
        for record in records:
            if record.base_id != next_id or record.base_tick <= last_tick:
                raise ValueError(
                    f"record with id {record.base_id} and tick {record.base_tick} where id"
                    f" {next_id} and a tick above {last_tick} belong"
                )
            if record.term != self._term:
                raise ValueError(f"record of term {record.term} in a log of {self._term}")
            if not record.sizes or sum(record.sizes) != len(record.body):
                raise ValueError(f"record {record.base_id}: the sizes are not those of the body")
            next_id, last_tick = record.next_id, record.last_tick

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Closed(self._channel)

    def _fail(self, error: WalError) -> WalError:
        self._final = error
        return error


def _size(record: Record) -> int:
    name, sizes = len(record.vchannel.encode()), 4 * len(record.sizes)
    return _RECORD_OVERHEAD_BYTES + name + sizes + len(record.body)
