"""When a stream that has brought many requests lets others have their turn.

Requests are judged without a wait between them, and a window of 2 MiB holds 40,000 tiny ones. A
stream that has used up its time waits at the gate, which lets one of them through in each round of
the event loop, whoever waited longest: so one round takes one turn, however many streams are busy.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURN_S: Final = 0.002
"""Some hundred requests; those that come with one read of the socket are seldom more."""
REQUEST_BYTES: Final = 1024
"""Counted for a request beside its size."""
LOOK_BYTES: Final = 16 * 1024
"""Of requests, between two looks at the clock."""


class TurnGate:
    """One for a server."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return when it is this stream's turn, in the next round at the earliest."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._let_one_through, loop)
        await turn

    def _let_one_through(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            # Of a stream that has ended meanwhile.
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            loop.call_soon(self._let_one_through, loop)


class StreamTurns:
    """Of one stream: `begin` when requests were read, `next` before each, `end` behind the last."""

    __slots__ = ("_at_s", "_gate", "_now_s", "_unseen_bytes", "_used_s")

    def __init__(self, gate: TurnGate, now_s: Callable[[], float] | None = None) -> None:
        self._gate = gate
        self._now_s = now_s or asyncio.get_running_loop().time
        self._at_s = self._used_s = 0.0
        self._unseen_bytes = 0

    def begin(self) -> None:
        """What was waited for until now counts for nothing."""
        self._at_s = self._now_s()

    def end(self) -> None:
        """All that were read are taken."""
        self._used_s += self._now_s() - self._at_s

    async def next(self, size_bytes: int) -> None:
        """Before requests of this size: wait at the gate if this stream's time is used up."""
        self._unseen_bytes += REQUEST_BYTES + size_bytes
        if self._unseen_bytes < LOOK_BYTES:
            return
        self._unseen_bytes = 0
        now_s = self._now_s()
        self._used_s += now_s - self._at_s
        self._at_s = now_s
        if self._used_s > TURN_S:
            await self._gate.wait()
            self._used_s, self._at_s = 0.0, self._now_s()
