"""tidemark.v1.TimeSync, cursors: how far each named reader has processed its channels."""

from collections.abc import Mapping, Sequence

from grpclib.const import Handler

from broker.core.security.grants import Resource, ResourceKind
from broker.edge.rpc.access.access import CURRENT
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.model.failure import invalid_argument
from broker.model.ids import MessageId, TimeTick
from broker.model.named_cursor import WHOLE_TICK, ChannelPosition, CursorView
from broker.timesync.messages import (
    CommitCursor,
    DropCursor,
    GetCursor,
    ListCursors,
    MoveCursor,
    OpenCursor,
    ResetCursor,
)
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.TimeSync/"


class CursorsService:
    """Each call may be repeated; see `broker/timesync/messages.py`."""

    def __init__(self, middleware: Middleware, cursors: Proxy) -> None:
        self._middleware = middleware
        self._cursors = cursors

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "MoveCursor": middleware.unary(v1.MoveCursorRequest, self.move),
            SERVICE + "OpenCursor": middleware.unary(v1.OpenCursorRequest, self.open),
            SERVICE + "CommitCursor": middleware.unary(v1.CommitCursorRequest, self.commit),
            SERVICE + "ResetCursor": middleware.unary(v1.ResetCursorRequest, self.reset),
            SERVICE + "GetCursor": middleware.unary(v1.GetCursorRequest, self.get),
            SERVICE + "ListCursors": middleware.unary(v1.ListCursorsRequest, self.list),
            SERVICE + "DropCursor": middleware.unary(v1.DropCursorRequest, self.drop),
        }

    async def move(self, request: v1.MoveCursorRequest) -> v1.CursorInfo:
        """Move a cursor; see `messages.MoveCursor`."""
        tick = TimeTick(request.time_tick)
        move = MoveCursor(request.name, tuple(request.channels), tick)
        return _encoded(await self._cursors.ask(move))

    async def open(self, request: v1.OpenCursorRequest) -> v1.CursorInfo:
        """The cursor as it is, or a new one."""
        positions = _positions(request.positions)
        return _encoded(
            await self._cursors.ask(OpenCursor(request.name, positions, holds=not request.no_hold))
        )

    async def commit(self, request: v1.CommitCursorRequest) -> v1.CursorInfo:
        """What a reader has processed. INVALID_REQUEST_SEQ for one of another epoch."""
        positions = _positions(request.positions)
        return _encoded(
            await self._cursors.ask(CommitCursor(request.name, request.epoch, positions))
        )

    async def reset(self, request: v1.ResetCursorRequest) -> v1.CursorInfo:
        """Set a cursor forward or back."""
        holds = None if request.no_hold is None else not request.no_hold
        reset = ResetCursor(request.name, _positions(request.positions), holds=holds)
        return _encoded(await self._cursors.ask(reset))

    async def get(self, request: v1.GetCursorRequest) -> v1.CursorInfo:
        """One cursor. CHANNEL_NOT_EXIST when there is none."""
        return _encoded(await self._cursors.ask(GetCursor(request.name)))

    async def list(self, _: v1.ListCursorsRequest) -> v1.ListCursorsResponse:
        """The cursors that the caller sees, sorted by name."""
        shows = await CURRENT.get().sight()
        found = await self._cursors.ask(ListCursors())
        seen = [it for it in found if shows(Resource(ResourceKind.CURSOR, it.name))]
        return v1.ListCursorsResponse(cursors=[_encoded(it) for it in seen])

    async def drop(self, request: v1.DropCursorRequest) -> v1.DropCursorResponse:
        """Drop a cursor. CHANNEL_NOT_EXIST when there is none."""
        await self._cursors.ask(DropCursor(request.name))
        return v1.DropCursorResponse()


def _encoded(cursor: CursorView) -> v1.CursorInfo:
    return v1.CursorInfo(
        name=cursor.name,
        time_tick=cursor.tick,
        channels=list(cursor.channels),
        moved_ms=cursor.moved_ms,
        lag_ms=cursor.lag_ms,
        closed_tick=cursor.closed_tick,
        behind_ms=cursor.behind_ms,
        epoch=cursor.epoch,
        ticks=[it.tick for it in cursor.positions.values()],
        ids=[0 if it.id == WHOLE_TICK else it.id for it in cursor.positions.values()],
        from_ids=[it.from_id for it in cursor.positions.values()],
        closed_ticks=list(cursor.closed_ticks.values()),
        held_bytes=cursor.held_bytes,
        no_hold=not cursor.holds,
        passed=dict(cursor.passed),
    )


def _positions(given: Sequence[v1.CursorPosition]) -> Mapping[str, ChannelPosition]:
    found = {
        it.channel: ChannelPosition(
            TimeTick(it.time_tick), MessageId(it.id) or WHOLE_TICK, MessageId(it.from_id)
        )
        for it in given
    }
    if len(found) < len(given):
        raise invalid_argument("a cursor's channel is named twice; name each once")
    return found
