"""The log of a pchannel, wherever it lies: one driver's until another one's has taken over."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import anyio

from broker.model.ids import MessageId, Term, TimeTick
from broker.model.record import Record
from broker.model.retention.dead import Contents, Dead
from broker.model.retention.policy import Retention, SealedSegment
from broker.ports.switching.log_copies import CopyTarget
from broker.ports.wal import Judge, LogBounds, LogMoves
from broker.wal.alter.log_copy import LogCopy

T = TypeVar("T")


class _Append(Protocol):
    def __call__(
        self, records: Sequence[Record], when_written: Callable[[], None] | None = None
    ) -> Awaitable[None]: ...


class _Users:
    """Counts those inside its block."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1


class PlacedLog:
    """Implements `ports.wal.Log`.

    `append` is that of the driver itself, so that appends cost what they cost there. While the log
    is held, nothing is removed from it, and no segments are shown, so that nobody asks for it.
    `copy`: the one under way. `retired`: the log that was switched from, open for reads that have
    begun. `spent`: the log at the other place failed, and can be opened at the next term only.
    `turn`: held by whoever uses the copy. `closed`: whoever had the log uses it no more.
    """

    append: _Append

    def __init__(self, log: CopyTarget, place: str, *, held: bool = False) -> None:
        self.copy: LogCopy | None = None
        self.retired: CopyTarget | None = None
        self._retired_users = _Users()
        self.spent = False
        self.held = held
        self.closed = False
        self.turn = anyio.Lock()
        self._removing = 0
        self._none_removes = anyio.Event()
        self._use(log, place)

    @property
    def driver(self) -> CopyTarget:
        """The log that takes the appends."""
        return self._log

    async def hold(self) -> None:
        """Keep all that the log has; returns when nothing is being removed any more."""
        self.held = True
        while self._removing:
            await self._none_removes.wait()

    def release(self) -> None:
        """Let retention and others remove again."""
        self.held = False

    def switch_over(self, place: str) -> None:
        """Go on with the copy, which has all that this log has; only while nobody appends."""
        copy, self.copy = self.copy, None
        assert copy is not None
        assert copy.is_whole
        self.retired, self._retired_users = self._log, self._users
        self._use(copy.target, place)
        self.release()

    async def abandon(self) -> None:
        """Close the logs at other places, which have failed; this term opens them no more."""
        copy, self.copy = self.copy, None
        self.spent = True
        if copy is not None:
            await copy.target.close()
        await self.forget_retired()

    @property
    def retired_in_use(self) -> bool:
        """Whether a read of the log that was switched from has not ended."""
        return self._retired_users.count > 0

    async def forget_retired(self) -> None:
        """Close the log that was switched from."""
        retired, self.retired = self.retired, None
        if retired is not None:
            await retired.close()

    def _use(self, log: CopyTarget, place: str) -> None:
        self._log, self.place = log, place
        self._users = _Users()
        self.append = log.append

    @property
    def term(self) -> Term:
        return self._log.term

    @property
    def gives_back(self) -> bool:
        return self._log.gives_back and not self.held

    def bounds(self) -> LogBounds:
        return self._log.bounds()

    def segments(self) -> Sequence[SealedSegment]:
        return () if self.held else self._log.segments()

    async def read(self, from_id: MessageId, bytes_max: int) -> Sequence[Record]:
        with self._users:
            return await self._log.read(from_id, bytes_max)

    async def seek_tick(self, tick: TimeTick) -> MessageId:
        with self._users:
            return await self._log.seek_tick(tick)

    async def advance(self, from_id: MessageId, until_id: MessageId, bytes_max: int) -> MessageId:
        with self._users:
            return await self._log.advance(from_id, until_id, bytes_max)

    async def truncate(self, before_id: MessageId, retention: Retention, now_ms: int) -> MessageId:
        if self.held:
            return self.bounds().first_id
        return await self._counted(lambda: self._log.truncate(before_id, retention, now_ms))

    async def seal(self) -> None:
        await self._log.seal()

    async def contents(self, segment: SealedSegment | None) -> Contents:
        self._refuse_held()
        return await self._counted(lambda: self._log.contents(segment))

    async def give_back(self, segment: SealedSegment, dead: Dead) -> int:
        self._refuse_held()
        return await self._counted(lambda: self._log.give_back(segment, dead))

    async def look(self, segment: SealedSegment, use: Callable[[Record], bool]) -> bool:
        self._refuse_held()
        return await self._counted(lambda: self._log.look(segment, use))

    async def thin(self, segment: SealedSegment, judge: Judge) -> int:
        self._refuse_held()
        return await self._counted(lambda: self._log.thin(segment, judge))

    def _refuse_held(self) -> None:
        if self.held:
            raise LogMoves(self.place)

    async def _counted(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do what `hold` waits for."""
        self._removing += 1
        try:
            return await work()
        finally:
            self._removing -= 1
            if not self._removing:
                self._none_removes.set()
                self._none_removes = anyio.Event()

    async def close(self) -> None:
        self.closed = True
        target = self.copy.target if self.copy is not None else None
        try:
            await self._log.close()
        finally:
            for other in (target, self.retired):
                if other is not None:
                    await other.close()

    def statistics(self) -> Mapping[str, int | float]:
        return self._log.statistics()
