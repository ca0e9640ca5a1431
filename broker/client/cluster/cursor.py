"""Named cursors: how far something has been processed, kept by the server under a name."""

from collections.abc import Iterable

from broker.client.cluster.retrying import retried
from broker.client.cluster.service import ServiceCalls
from broker.client.cluster.targets import Targets
from broker.client.errors import (
    ChannelNotExist,
    CursorMovedBack,
    InvalidArgument,
    InvalidRequestSequence,
    NoSuchCursor,
    TidemarkError,
)
from broker.client.net.connection import Connection
from broker.model.ids import TimeTick
from broker.model.named_cursor import CursorView
from schemas.generated.tidemark import v1

MOVE_S = 10.0
_TICK_MAX = (1 << 63) - 1


class Cursor:
    """The cursor of one name; `log.cursor(name)` makes it without asking the server.

    The server keeps it: nothing is cached here, and two programs that use one name share it.
    """

    def __init__(self, calls: ServiceCalls, targets: Targets, name: str) -> None:
        self.name = name
        self._calls = calls
        self._targets = targets

    async def move(
        self, tick: int, targets: str | Iterable[str] = (), *, deadline_s: float = MOVE_S
    ) -> CursorView:
        """Record that everything up to `tick` on the targets is processed; durable on return.

        The first move creates the cursor and has to name its targets; a later move that names
        targets replaces them. Moving to the same tick again is allowed. Errors that may pass are
        retried until `deadline_s`.

        Raises CursorMovedBack for a tick below the cursor's, NoSuchCursor for a new name without
        targets, InvalidArgument for a tick from the future, NoSuchCollection.
        """
        if not 0 < tick <= _TICK_MAX:
            raise InvalidArgument(f"{tick} is not a time tick; use one of a cut or of a message")
        channels: list[str] = (
            [*(await self._targets.resolve_all(targets)).vchannels] if targets else []
        )
        request = v1.MoveCursorRequest(name=self.name, channels=channels, time_tick=tick)

        async def attempt() -> CursorView:
            try:
                return _view(await self._calls.ask("MoveCursor", request, v1.CursorInfo))
            except InvalidRequestSequence as error:
                raise CursorMovedBack(error.cause, error.code) from None
            except ChannelNotExist as error:
                if channels:
                    raise
                raise NoSuchCursor(error.cause, error.code) from None

        return await retried(attempt, deadline_s, may_retry=_may_retry_move)

    async def get(self) -> CursorView:
        """Where the cursor is, and how far that is behind. Raises NoSuchCursor."""
        request = v1.GetCursorRequest(name=self.name)
        try:
            return _view(await self._calls.ask("GetCursor", request, v1.CursorInfo))
        except ChannelNotExist as error:
            raise NoSuchCursor(error.cause, error.code) from None

    async def drop(self) -> None:
        """Forget the cursor. Raises NoSuchCursor."""
        request = v1.DropCursorRequest(name=self.name)
        try:
            await self._calls.ask("DropCursor", request, v1.DropCursorResponse)
        except ChannelNotExist as error:
            raise NoSuchCursor(error.cause, error.code) from None


class NamedCursors:
    """`log.cursors`: all cursors that the server keeps."""

    def __init__(self, connection: Connection, targets: Targets, *, deadline_s: float) -> None:
        self._calls = ServiceCalls(connection, "tidemark.v1.TimeSync", deadline_s=deadline_s)
        self._targets = targets

    def named(self, name: str) -> Cursor:
        """The position that the server keeps under this name; no request is made yet."""
        return Cursor(self._calls, self._targets, name)

    async def list(self) -> list[CursorView]:
        """Every cursor, sorted by name, with how far it is behind."""
        request = v1.ListCursorsRequest()
        answer = await self._calls.ask("ListCursors", request, v1.ListCursorsResponse)
        return [_view(it) for it in answer.cursors]


def _may_retry_move(error: TidemarkError) -> bool:
    # The coordinator knows every pchannel: one that it does not know will not appear by waiting.
    return error.retriable and not isinstance(error, ChannelNotExist)


def _view(it: v1.CursorInfo) -> CursorView:
    return CursorView(
        name=it.name,
        tick=TimeTick(it.time_tick),
        channels=tuple(it.channels),
        moved_ms=it.moved_ms,
        lag_ms=it.lag_ms,
        closed_tick=TimeTick(it.closed_tick),
        behind_ms=it.behind_ms,
    )
