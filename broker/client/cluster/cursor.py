"""A named cursor in a program's hands: how far something has been processed, kept by the server.

It remembers nothing: what it says is what the server says now.
Next: broker/edge/tidemark/cursors_service.py
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

import anyio

from broker.client.errors import (
    ChannelNotExist,
    CursorMovedBack,
    DeadlineExceeded,
    InvalidArgument,
    InvalidRequestSequence,
    NoSuchCursor,
    TidemarkError,
)
from broker.client.net.backoff import Backoff
from broker.client.net.connection import Connection
from broker.model.ids import TimeTick
from broker.model.named_cursor import CursorView
from schemas.generated.tidemark import v1

_SERVICE = "/tidemark.v1.TimeSync/"
MOVE_S = 10.0
_TICK_MAX = (1 << 63) - 1

Resolve = Callable[[str | Iterable[str]], Awaitable[Sequence[str]]]
"""The vchannels of targets, each once."""


class Cursors:
    """Each call has its own deadline and raises what `errors` has."""

    def __init__(self, connection: Connection, *, deadline_s: float) -> None:
        self._connection = connection
        self._deadline_s = deadline_s

    async def move(self, name: str, channels: Sequence[str], tick: int) -> CursorView:
        """See `Cursor.move`."""
        request = v1.MoveCursorRequest(name=name, channels=list(channels), time_tick=tick)
        try:
            return await self._ask("MoveCursor", request)
        except InvalidRequestSequence as error:
            raise CursorMovedBack(error.cause, error.code) from None
        except ChannelNotExist as error:
            if channels:
                raise
            raise NoSuchCursor(error.cause, error.code) from None

    async def get(self, name: str) -> CursorView:
        """Raises NoSuchCursor."""
        try:
            return await self._ask("GetCursor", v1.GetCursorRequest(name=name))
        except ChannelNotExist as error:
            raise NoSuchCursor(error.cause, error.code) from None

    async def list(self) -> list[CursorView]:
        """All, by name."""
        answer = await self._connection.call(
            _SERVICE + "ListCursors",
            v1.ListCursorsRequest(),
            v1.ListCursorsResponse,
            deadline_s=self._deadline_s,
        )
        return [_view(it) for it in answer.cursors]

    async def drop(self, name: str) -> None:
        """Raises NoSuchCursor."""
        try:
            await self._connection.call(
                _SERVICE + "DropCursor",
                v1.DropCursorRequest(name=name),
                v1.DropCursorResponse,
                deadline_s=self._deadline_s,
            )
        except ChannelNotExist as error:
            raise NoSuchCursor(error.cause, error.code) from None

    async def _ask(
        self, method: str, request: v1.MoveCursorRequest | v1.GetCursorRequest
    ) -> CursorView:
        answer = await self._connection.call(
            _SERVICE + method, request, v1.CursorInfo, deadline_s=self._deadline_s
        )
        return _view(answer)


class Cursor:
    """Made by `Client.cursor`; nothing is asked before it is moved or looked at."""

    def __init__(self, calls: Cursors, resolve: Resolve, name: str) -> None:
        self.name = name
        self._calls = calls
        self._resolve = resolve

    async def move(
        self, tick: int, targets: str | Iterable[str] = (), *, deadline_s: float = MOVE_S
    ) -> CursorView:
        """Say that everything up to `tick` on the targets is processed; durable on return.

        The first move makes the cursor and has to name targets; later ones that do, say what it is
        about from then on. The same tick again is fine. What may succeed later is tried again until
        `deadline_s`. Raises CursorMovedBack for a tick below the cursor's, NoSuchCursor without
        targets for a new name, InvalidArgument for a tick from the future, NoSuchCollection.
        """
        if not 0 < tick <= _TICK_MAX:
            raise InvalidArgument(f"{tick} is no time tick")
        channels = await self._resolve(targets) if targets else ()
        backoff = Backoff()
        failure: TidemarkError = DeadlineExceeded(f"no answer within {deadline_s} s")
        with anyio.move_on_after(deadline_s):
            while True:
                try:
                    return await self._calls.move(self.name, channels, tick)
                except TidemarkError as error:
                    if not error.retriable or isinstance(error, ChannelNotExist):
                        raise  # the coordinator knows all pchannels there are
                    failure = error
                backoff = backoff.failed()
                await anyio.sleep(backoff.delay_s(1.0))
        raise failure

    async def get(self) -> CursorView:
        """Where it is, and how far that is behind. Raises NoSuchCursor."""
        return await self._calls.get(self.name)

    async def drop(self) -> None:
        """Forget it. Raises NoSuchCursor."""
        await self._calls.drop(self.name)


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
