"""Named cursors: how far each of some readers, anywhere, has processed its channels.

Closed ticks seen before are remembered, so that most moves are one write, and a poll that fails
does not refuse what is already known to be closed.
"""

from collections.abc import Sequence
from typing import assert_never

from actors import Actor, Context, Envelope
from broker.core.time.named_cursor import (
    future_refusal,
    move_refusal,
    moved,
    name_refusal,
    room_refusal,
    view,
)
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import PChannelName, TimeTick
from broker.model.named_cursor import CursorView, NamedCursor
from broker.ports.closed_ticks import ClosedTicks
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import MetaError, MetaStore
from broker.timesync.cursor_records import CursorRecords, RecordedCursor
from broker.timesync.messages import (
    CursorMessage,
    DropCursor,
    GetCursor,
    ListCursors,
    MoveCursor,
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
            # Limits count all cursors; an ordinary move need not list them.
            if before is None or len(after.channels) > len(before.channels):
                others = [it for it in await self._records.list() if it.name != name]
                _check(room_refusal(others, after))
            await self._records.save(recorded, after)
            return after

        return await retry_conflicts(f"cursor {name!r}", attempt)

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
