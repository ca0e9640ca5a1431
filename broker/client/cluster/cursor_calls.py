"""The calls of `tidemark.v1.TimeSync` about cursors, with the errors that mean something there."""

from collections.abc import Mapping, Sequence

from broker.client.cluster.service import ServiceCalls
from broker.client.errors import (
    ChannelNotExist,
    CursorMovedBack,
    CursorWasReset,
    InvalidRequestSequence,
    NoSuchCursor,
    TidemarkError,
)
from broker.model.ids import MessageId, TimeTick
from broker.model.named_cursor import WHOLE_TICK, ChannelPosition, CursorView
from schemas.generated.tidemark import v1

Positions = Mapping[str, ChannelPosition]


class CursorCalls:
    """One request each; nothing is retried here."""

    def __init__(self, calls: ServiceCalls) -> None:
        self._calls = calls

    async def move(self, name: str, tick: int, channels: Sequence[str]) -> CursorView:
        """Raises CursorMovedBack; NoSuchCursor for a new name without channels."""
        request = v1.MoveCursorRequest(name=name, channels=[*channels], time_tick=tick)
        try:
            return _view(await self._calls.ask("MoveCursor", request, v1.CursorInfo))
        except InvalidRequestSequence as error:
            raise CursorMovedBack(error.cause, error.code) from None
        except ChannelNotExist as error:
            if channels:
                raise
            raise NoSuchCursor(error.cause, error.code) from None

    async def open(self, name: str, positions: Positions) -> CursorView:
        """The cursor as it is, or a new one at these positions."""
        request = v1.OpenCursorRequest(name=name, positions=_positions(positions))
        return _view(await self._calls.ask("OpenCursor", request, v1.CursorInfo))

    async def commit(self, name: str, epoch: int, positions: Positions) -> CursorView:
        """Raises CursorWasReset or NoSuchCursor."""
        request = v1.CommitCursorRequest(name=name, epoch=epoch, positions=_positions(positions))
        try:
            return _view(await self._calls.ask("CommitCursor", request, v1.CursorInfo))
        except InvalidRequestSequence as error:
            raise CursorWasReset(error.cause, error.code) from None
        except ChannelNotExist as error:
            raise NoSuchCursor(error.cause, error.code) from None

    async def reset(
        self, name: str, positions: Positions, *, holds: bool | None = None
    ) -> CursorView:
        """Set the cursor, new or not, to exactly these positions. `holds` None: as before."""
        no_hold = None if holds is None else not holds
        request = v1.ResetCursorRequest(name=name, positions=_positions(positions), no_hold=no_hold)
        return _view(await self._calls.ask("ResetCursor", request, v1.CursorInfo))

    async def get(self, name: str) -> CursorView:
        """Raises NoSuchCursor."""
        try:
            request = v1.GetCursorRequest(name=name)
            return _view(await self._calls.ask("GetCursor", request, v1.CursorInfo))
        except ChannelNotExist as error:
            raise NoSuchCursor(error.cause, error.code) from None

    async def list(self) -> list[CursorView]:
        """All, sorted by name."""
        request = v1.ListCursorsRequest()
        answer = await self._calls.ask("ListCursors", request, v1.ListCursorsResponse)
        return [_view(it) for it in answer.cursors]

    async def drop(self, name: str) -> None:
        """Raises NoSuchCursor."""
        try:
            request = v1.DropCursorRequest(name=name)
            await self._calls.ask("DropCursor", request, v1.DropCursorResponse)
        except ChannelNotExist as error:
            raise NoSuchCursor(error.cause, error.code) from None


def may_retry(error: TidemarkError) -> bool:
    """Whether the same request may succeed later."""
    # The coordinator knows every pchannel: one that it does not know will not appear by waiting.
    return error.retriable and not isinstance(error, ChannelNotExist)


def _positions(positions: Positions) -> list[v1.CursorPosition]:
    return [
        v1.CursorPosition(
            channel=name,
            time_tick=at.tick,
            id=0 if at.id == WHOLE_TICK else at.id,
            from_id=at.from_id,
        )
        for name, at in positions.items()
    ]


def _view(it: v1.CursorInfo) -> CursorView:
    # A server from before positions were kept by channel sends the one tick alone.
    ticks = it.ticks or [it.time_tick] * len(it.channels)
    places = zip(ticks, it.ids or [0] * len(ticks), it.from_ids or [0] * len(ticks), strict=True)
    positions = [
        ChannelPosition(TimeTick(tick), MessageId(id) or WHOLE_TICK, MessageId(from_id))
        for tick, id, from_id in places
    ]
    closed = it.closed_ticks or [it.closed_tick] * len(ticks)
    return CursorView(
        name=it.name,
        tick=TimeTick(it.time_tick),
        channels=tuple(it.channels),
        moved_ms=it.moved_ms,
        lag_ms=it.lag_ms,
        closed_tick=TimeTick(it.closed_tick),
        behind_ms=it.behind_ms,
        epoch=it.epoch,
        positions=dict(zip(it.channels, positions, strict=True)),
        closed_ticks=dict(zip(it.channels, map(TimeTick, closed), strict=True)),
        holds=not it.no_hold,
        held_bytes=it.held_bytes,
        passed=dict(it.passed),
    )
