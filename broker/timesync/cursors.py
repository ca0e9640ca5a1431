"""Named cursors: how far each of some readers, anywhere, has processed its channels.

Closed ticks seen before are remembered, so that most moves are one write, and a poll that fails
does not refuse what is already known to be closed.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from actors import Actor, Context, Envelope
from broker.core.time import tso
from broker.core.time.named_cursor import (
    Positions,
    channels_refusal,
    commit_refusal,
    committed,
    future_refusal,
    move_refusal,
    moved,
    name_refusal,
    new_name_refusal,
    positions_refusal,
    room_refusal,
    view,
)
from broker.model.failure import Refusal, Refused, StreamingCode, invalid_argument
from broker.model.ids import PChannelName, TimeTick
from broker.model.named_cursor import CursorView, NamedCursor
from broker.ports.closed_ticks import ClosedTicks
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import MetaError, MetaStore
from broker.timesync.cursor_records import CursorRecords, RecordedCursor, record_refusal
from broker.timesync.messages import (
    CommitCursor,
    CursorMessage,
    DropCursor,
    GetCursor,
    ListCursors,
    MoveCursor,
    OpenCursor,
    ResetCursor,
)

Answer = CursorView | tuple[CursorView, ...] | None


class Cursors(Actor[CursorMessage]):
    """A change is durable when it is answered."""

    def __init__(
        self, store: MetaStore, source: ClosedTicks, pchannels: Sequence[PChannelName]
    ) -> None:
        self._records = CursorRecords(store)
        self._source = source
        self._pchannels = frozenset(pchannels)
        self._closed: dict[PChannelName, TimeTick] = {}
        self._newest_epoch = 0

    async def started(self, context: Context[CursorMessage]) -> None:
        self._clock = context.clock

    async def receive(self, batch: Sequence[Envelope[CursorMessage]]) -> None:
        for envelope in batch:
            try:
                envelope.reply(await self._answer(envelope.message))
            except Refused as error:
                envelope.fail(error)
            except MetaError as error:
                envelope.fail(Refused(StreamingCode.INNER, str(error)))

    async def _answer(self, message: CursorMessage) -> Answer:
        match message:
            case MoveCursor(name, channels, tick):
                return self._view(await self._move(name, channels, tick))
            case OpenCursor(name, positions):
                return self._view(await self._set(name, positions, reset=False))
            case CommitCursor(name, epoch, positions):
                return self._view(await self._commit(name, epoch, positions))
            case ResetCursor(name, positions):
                return self._view(await self._set(name, positions, reset=True))
            case GetCursor(name):
                found, _ = await self._found(name)
                await self._refresh_closed()
                return self._view(found)
            case ListCursors():
                cursors = await self._records.list()
                await self._refresh_closed()
                return tuple([self._view(it) for it in cursors])
            case DropCursor(name):
                await self._drop(name)
                return None
            case _:
                assert_never(message)

    async def _move(self, name: str, channels: tuple[str, ...], tick: TimeTick) -> NamedCursor:
        _check(name_refusal(name))

        async def attempt() -> NamedCursor:
            recorded = await self._records.read(name)
            before = recorded.cursor
            _check(move_refusal(name, before, channels, tick, self._pchannels))
            after = moved(name, before, channels, tick, self._clock.wall_ms())
            await self._check_closed(after)
            if after == before:
                return after
            if before is None:
                after = replace(after, epoch=self._next_epoch())
            await self._save(recorded, after)
            return after

        return await retry_conflicts(f"cursor {name!r}", attempt)

    async def _set(self, name: str, positions: Positions, *, reset: bool) -> NamedCursor:
        _check(name_refusal(name))
        _check(channels_refusal(tuple(positions), self._pchannels))
        if not positions:
            raise invalid_argument(f"cursor {name!r} needs at least one channel; name a target")
        await self._check_possible(positions)

        async def attempt() -> NamedCursor:
            recorded = await self._records.read(name)
            if recorded.cursor is not None and not reset:
                return recorded.cursor
            # A reader from before must not undo the reset, nor commit to a cursor made again.
            epoch = self._next_epoch(recorded.cursor.epoch if recorded.cursor else 0)
            after = NamedCursor(name, positions, self._clock.wall_ms(), epoch)
            await self._save(recorded, after)
            return after

        return await retry_conflicts(f"cursor {name!r}", attempt)

    async def _commit(self, name: str, epoch: int, positions: Positions) -> NamedCursor:
        await self._check_possible(positions)

        async def attempt() -> NamedCursor:
            before, recorded = await self._found(name)
            _check(commit_refusal(before, positions, epoch))
            after = committed(before, positions, self._clock.wall_ms())
            if after != before:
                await self._records.save(recorded, after)
            return after

        return await retry_conflicts(f"cursor {name!r}", attempt)

    def _next_epoch(self, before: int = 0) -> int:
        # By the clock, since nothing is left of a cursor that was dropped.
        self._newest_epoch = max(self._newest_epoch + 1, before + 1, self._clock.wall_ms())
        return self._newest_epoch

    async def _save(self, recorded: RecordedCursor, after: NamedCursor) -> None:
        before = recorded.cursor
        if before is None:
            _check(new_name_refusal(after.name))
        # Limits count all cursors; an ordinary move need not list them.
        if before is None or len(after.channels) > len(before.channels):
            others = [it for it in await self._records.list() if it.name != after.name]
            _check(room_refusal(others, after))
            _check(record_refusal(after))
        await self._records.save(recorded, after)

    async def _check_possible(self, positions: Positions) -> None:
        """Refuse ticks that no reader can have seen yet; ticks may run ahead of the clock."""
        now = tso.compose(self._clock.wall_ms(), 0)
        newest = max(now, *self._closed.values(), TimeTick(0))
        if positions_refusal(positions, newest) is not None:
            await self._refresh_closed()
            _check(positions_refusal(positions, max(now, *self._closed.values(), TimeTick(0))))

    async def _check_closed(self, after: NamedCursor) -> None:
        # Poll only if needed: most moves are to ticks that are known to be closed already.
        if future_refusal(after.channels, after.tick, self._closed) is not None:
            await self._refresh_closed()
            _check(future_refusal(after.channels, after.tick, self._closed))

    async def _drop(self, name: str) -> None:
        async def attempt() -> None:
            _, recorded = await self._found(name)
            await self._records.drop(recorded, name)

        await retry_conflicts(f"cursor {name!r}", attempt)

    async def _found(self, name: str) -> tuple[NamedCursor, RecordedCursor]:
        _check(name_refusal(name))
        recorded = await self._records.read(name)
        if recorded.cursor is None:
            raise Refused(StreamingCode.CHANNEL_NOT_EXIST, f"there is no cursor {name!r}")
        return recorded.cursor, recorded

    async def _refresh_closed(self) -> None:
        """Poll the closed ticks; keep the larger ones, since a closed tick stays closed."""
        try:
            seen = await self._source.closed_ticks()
        except Refused:
            return  # what was closed at an earlier poll still is
        for name, tick in seen.items():
            self._closed[name] = max(tick, self._closed.get(name, tick))

    def _view(self, cursor: NamedCursor) -> CursorView:
        return view(cursor, self._closed, self._clock.wall_ms())


def _check(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise Refused(refusal.code, refusal.cause)
