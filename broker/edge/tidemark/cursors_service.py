"""tidemark.v1.TimeSync, cursors: how far each named reader has processed its channels."""

from collections.abc import Mapping

from grpclib.const import Handler

from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.model.ids import TimeTick
from broker.model.named_cursor import CursorView
from broker.timesync.messages import DropCursor, GetCursor, ListCursors, MoveCursor
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.TimeSync/"


class CursorsService:
    """MoveCursor, GetCursor, ListCursors, DropCursor; each may be repeated."""

    def __init__(self, middleware: Middleware, cursors: Proxy) -> None:
        self._middleware = middleware
        self._cursors = cursors

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "MoveCursor": middleware.unary(v1.MoveCursorRequest, self.move),
            SERVICE + "GetCursor": middleware.unary(v1.GetCursorRequest, self.get),
            SERVICE + "ListCursors": middleware.unary(v1.ListCursorsRequest, self.list),
            SERVICE + "DropCursor": middleware.unary(v1.DropCursorRequest, self.drop),
        }

    async def move(self, request: v1.MoveCursorRequest) -> v1.CursorInfo:
        """Move a cursor; see `messages.MoveCursor`."""
        tick = TimeTick(request.time_tick)
        move = MoveCursor(request.name, tuple(request.channels), tick)
        return _encoded(await self._cursors.ask(move))

    async def get(self, request: v1.GetCursorRequest) -> v1.CursorInfo:
        """One cursor. CHANNEL_NOT_EXIST when there is none."""
        return _encoded(await self._cursors.ask(GetCursor(request.name)))

    async def list(self, _: v1.ListCursorsRequest) -> v1.ListCursorsResponse:
        """All cursors, sorted by name."""
        found = await self._cursors.ask(ListCursors())
        return v1.ListCursorsResponse(cursors=[_encoded(it) for it in found])

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
    )
