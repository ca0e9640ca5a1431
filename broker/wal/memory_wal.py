"""An in-memory log with the same contract, for tests and the simulator, with injected faults.

Records survive closing and reopening for as long as the `MemoryWal` object lives.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import NamedTuple

from broker.core.space.dead_records import is_dead, only_closes
from broker.core.space.removal import expired
from broker.model.ids import (
    FIRST_MESSAGE_ID,
    TICK_LOGICAL_BITS,
    MessageId,
    PChannelName,
    Term,
    TimeTick,
)
from broker.model.record import Record
from broker.model.retention.dead import Contents, Dead, VChannelPart
from broker.model.retention.policy import Retention, SealedSegment
from broker.ports.wal import (
    Fenced,
    Judge,
    LogBounds,
    LogClosed,
    OutOfRange,
    WalError,
    WriterFailed,
)
from broker.wal.append_check import check_append, check_copy
from broker.wal.listed_segments import index_of, nothing_behind

# The fixed part of a stored record, so that sizes are those of the segmented log.
_RECORD_OVERHEAD_BYTES = 68
_LeftOf = Callable[[Record, bool, MessageId], Sequence[Record]]


class Fault(Enum):
    """How an append fails.

    LOST: it was not written. UNSYNCED, KEPT: its sync failed, and the data is gone or still there.
    """

    LOST = auto()
    UNSYNCED = auto()
    KEPT = auto()


FaultOf = Callable[[PChannelName, Sequence[Record]], Fault | None]


def no_fault(_channel: PChannelName, _records: Sequence[Record]) -> Fault | None:
    """The default: every append succeeds."""
    return None


async def no_pause() -> None:
    """The default: an append takes no time."""


class MemorySegment(NamedTuple):
    """A sealed segment."""

    next_id: MessageId
    last_tick: TimeTick
    size_bytes: int


@dataclass(slots=True)
class _Stored:
    """One channel: its records in order, and where its segments begin. The last takes appends."""

    term: Term = Term(0)
    first_id: MessageId = FIRST_MESSAGE_ID
    next_id: MessageId = FIRST_MESSAGE_ID
    last_tick: TimeTick = TimeTick(0)
    last_term: Term = Term(0)
    records: list[Record] = field(default_factory=list)
    size_bytes: int = 0
    sealed: list[MemorySegment] = field(default_factory=list)
    active_bytes: int = 0
    active_tick: TimeTick = TimeTick(0)
    removed_tick: TimeTick = TimeTick(0)

    def store(self, records: Sequence[Record], segment_bytes: int) -> None:
        if self.active_bytes >= segment_bytes:
            self.seal()
        if not self.active_bytes:
            self.active_tick = records[0].base_tick
        size = sum(map(_size, records))
        self.records += records
        self.size_bytes += size
        self.active_bytes += size
        last = records[-1]
        self.next_id, self.last_tick, self.last_term = last.next_id, last.last_tick, last.term

    def seal(self) -> None:
        """Start a new segment, unless the active one is empty."""
        if self.active_bytes:
            self.sealed.append(MemorySegment(self.next_id, self.last_tick, self.active_bytes))
        self.active_bytes = 0

    def drop_segment(self) -> None:
        self.first_id, self.removed_tick, size = self.sealed.pop(0)
        self.size_bytes -= size
        self.records = [record for record in self.records if record.base_id >= self.first_id]

    def empty(self, first_id: MessageId, removed_tick: TimeTick) -> None:
        """Forget all records, and go on at this id."""
        self.first_id = self.next_id = first_id
        self.removed_tick = self.last_tick = removed_tick
        self.records, self.sealed, self.size_bytes, self.active_bytes = [], [], 0, 0

    def part(self, number: int) -> list[Record]:
        """The records of a sealed segment; of the active one behind the last."""
        base_id = self.base_of(number)
        next_id = self.sealed[number].next_id if number < len(self.sealed) else self.next_id
        return [it for it in self.records if base_id <= it.base_id < next_id]

    def rewrite(self, number: int, left_of: Callable[[Record, bool], Sequence[Record]]) -> int:
        """Keep what is left of each record; `left_of` is told whether nothing is of the last."""
        kept: dict[MessageId, Sequence[Record]] = {}
        before, size = False, 0
        for record in self.part(number):
            left = kept[record.base_id] = left_of(record, before)
            before = not left
            size += _size(record) - sum(map(_size, left))
        segment = self.sealed[number]
        if any(
            it != (record,) for record, it in zip(self.part(number), kept.values(), strict=True)
        ):
            self.sealed[number] = segment._replace(size_bytes=segment.size_bytes - size)
            self.size_bytes -= size
            self.records = [run for it in self.records for run in kept.get(it.base_id, (it,))]
        return max(0, size)

    def base_of(self, number: int) -> MessageId:
        """The first id of a sealed segment."""
        return self.sealed[number - 1].next_id if number else self.first_id

    def bounds(self) -> LogBounds:
        return LogBounds(
            self.first_id,
            self.next_id,
            self.last_tick,
            self.last_term,
            self.size_bytes,
            self.removed_tick,
        )


class MemoryWal:
    """Implements `ports.wal.Wal`.

    `fault_of` decides the fate of each append. `pause` is awaited after a group is stored and
    before it is acknowledged, so a test can fence it there. `is_writable` is for `why_unwritable`.
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
        # As the segmented log does, so that retention drops the same.
        stored.seal()
        return MemoryLog(self, channel, term, stored)

    def warnings(self) -> Sequence[str]:
        return ()

    async def why_unwritable(self, channel: PChannelName) -> str:
        return "" if self._is_writable() else "it was told to take none"


class MemoryLog:
    """Implements `ports.wal.Log`."""

    def __init__(self, wal: MemoryWal, channel: PChannelName, term: Term, stored: _Stored) -> None:
        self._wal, self._channel, self._term, self._stored = wal, channel, term, stored
        self._final: WalError | None = None
        self._closed = False
        self._groups = 0
        # What this owner knows to be durable: a fenced one never sees its successor's records.
        self._bounds = stored.bounds()

    @property
    def term(self) -> Term:
        return self._term

    @property
    def gives_back(self) -> bool:
        return True

    def bounds(self) -> LogBounds:
        return self._bounds

    def segments(self) -> Sequence[MemorySegment]:
        return tuple(self._stored.sealed)

    async def append(
        self, records: Sequence[Record], when_written: Callable[[], None] | None = None
    ) -> None:
        self._refuse_closed()
        if self._final is not None:
            raise self._final
        if not records:
            return
        bounds = self.bounds()
        check_append(records, bounds.next_id, bounds.last_tick, self._term)
        if self._stored.term != self._term:
            raise self._fail(Fenced(self._channel, self._term, self._stored.term))
        fault = self._wal.fault_of(self._channel, records)
        if fault not in (Fault.LOST, Fault.UNSYNCED):
            self._stored.store(records, self._wal.segment_bytes)
        if when_written is not None and fault is not Fault.LOST:
            when_written()
        if fault is not None:
            raise self._fail(WriterFailed(f"{self._channel}: injected fault"))
        await self._wal.pause()
        if self._stored.term != self._term:
            raise self._fail(Fenced(self._channel, self._term, self._stored.term))
        self._groups += 1
        self._bounds = self._stored.bounds()

    async def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        self._refuse_closed()
        records, at = self._locate(from_id)
        taken, size = list[Record](), 0
        for record in islice(records, at, None):
            size += _size(record)
            if taken and size > bytes_max:
                break
            taken.append(record)
        return taken

    async def seek_tick(self, tick: TimeTick) -> MessageId:
        self._refuse_closed()
        bounds, records = self._bounds, self._stored.records
        at = bisect_left(records, tick, key=lambda r: r.last_tick)
        if at == len(records):
            return bounds.next_id
        found = records[at]
        return MessageId(min(found.base_id + max(0, tick - found.base_tick), bounds.next_id))

    async def advance(self, from_id: MessageId, until_id: MessageId, bytes_max: int) -> MessageId:
        self._refuse_closed()
        records, at = self._locate(from_id)
        reached, size = from_id, 0
        for record in islice(records, at, None):
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
        if 0 < retention.age_ms_max < now_ms - (stored.active_tick >> TICK_LOGICAL_BITS):
            stored.seal()
        sealed = self.segments()
        allowed = expired(sealed, stored.active_bytes, retention, now_ms)
        for segment in sealed[:allowed]:
            if segment.next_id > before_id:
                break
            stored.drop_segment()
        self._bounds = self._stored.bounds()
        return self.bounds().first_id

    async def seal(self) -> None:
        self._refuse_closed()
        if self._stored.term == self._term:
            self._stored.seal()

    async def contents(self, segment: SealedSegment | None) -> Contents:
        self._refuse_closed()
        number = self._number(segment)
        found: dict[str, VChannelPart] = {}
        for it in [] if number is None else self._stored.part(number):
            part, before = VChannelPart(_size(it), it.base_id, it.next_id), found.get(it.vchannel)
            found[it.vchannel] = part if before is None else before.joined(part)
        return found

    async def give_back(self, segment: SealedSegment, dead: Dead) -> int:
        def left_of(record: Record, behind_dead: bool, base_id: MessageId) -> Sequence[Record]:
            gone = is_dead(record, dead, behind_dead=behind_dead, segment_id=base_id)
            return () if gone else (record,)

        return self._rewrite(segment, left_of)

    async def look(self, segment: SealedSegment, use: Callable[[Record], bool]) -> bool:
        self._refuse_closed()
        number = self._number(segment)
        return number is None or all(map(use, self._stored.part(number)))

    async def thin(self, segment: SealedSegment, judge: Judge) -> int:
        def left_of(record: Record, behind_dead: bool, _: MessageId) -> Sequence[Record]:
            left = () if behind_dead and only_closes(record) else judge(record)
            return (record,) if left is None else left

        return self._rewrite(segment, left_of)

    def _rewrite(self, segment: SealedSegment, left_of: _LeftOf) -> int:
        self._refuse_closed()
        stored, number = self._stored, self._number(segment)
        if stored.term != self._term:
            raise Fenced(self._channel, self._term, stored.term)
        if number is None:
            return 0
        if not stored.active_bytes:
            raise nothing_behind(self._channel)
        base_id = stored.base_of(number)
        given = stored.rewrite(number, lambda record, before: left_of(record, before, base_id))
        self._bounds = stored.bounds()
        return given

    async def begin_anew(self, first_id: MessageId, removed_tick: TimeTick) -> None:
        self._refuse_fenced()
        self._stored.empty(first_id, removed_tick)
        self._bounds = self._stored.bounds()

    async def append_copies(
        self, records: Sequence[Record], until_id: MessageId, until_tick: TimeTick
    ) -> None:
        self._refuse_fenced()
        for record in records:
            check_copy(record, self._stored.next_id, self._stored.last_tick)
            self._stored.store([record], self._wal.segment_bytes)
        self._stored.next_id = until_id
        self._stored.last_tick = max(self._stored.last_tick, until_tick)
        self._bounds = self._stored.bounds()

    async def discard(self) -> None:
        self._refuse_fenced()
        self._stored.empty(FIRST_MESSAGE_ID, TimeTick(0))
        self._bounds = self._stored.bounds()

    async def close(self) -> None:
        self._closed = True

    def statistics(self) -> Mapping[str, int | float]:
        return {"groups": self._groups, "segments": len(self._stored.sealed) + 1}

    def _number(self, segment: SealedSegment | None) -> int | None:
        if segment is None:
            return len(self._stored.sealed)
        return index_of(segment, self._stored.sealed, self._stored.first_id, self._channel)

    def _locate(self, from_id: MessageId) -> tuple[list[Record], int]:
        """The records visible to this owner, and the index of the one that holds `from_id`."""
        bounds, records = self._bounds, self._stored.records
        first_id = max(bounds.first_id, self._stored.first_id)
        if not first_id <= from_id <= bounds.next_id:
            raise OutOfRange(self._channel, from_id, first_id, bounds.next_id)
        at = bisect_right(records, from_id, key=lambda r: r.next_id)
        if records and records[-1].next_id > bounds.next_id:
            records = records[: bisect_right(records, bounds.next_id, key=lambda r: r.next_id)]
        return records, at

    def _refuse_fenced(self) -> None:
        self._refuse_closed()
        if self._stored.term != self._term:
            raise Fenced(self._channel, self._term, self._stored.term)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise LogClosed(self._channel)

    def _fail(self, error: WalError) -> WalError:
        self._final = error
        return error


def _size(record: Record) -> int:
    name, sizes = len(record.vchannel.encode()), 4 * len(record.sizes)
    return _RECORD_OVERHEAD_BYTES + name + sizes + len(record.body)
