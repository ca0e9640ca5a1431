"""What a stream of appends has in flight, and how it ends: one part of both protocols' streams.

Owns the count of what is unanswered, the answers on their way out, the back-pressure, and the
reason of the end. It never looks at a request or an answer.

Order of ends (facts of the wire, 3.2): whatever ends the stream, requests are no longer read, the
ones in flight get their answers, then the stream says its last word. Back-pressure: while
`produce_inflight_bytes_max` bytes are unanswered or unread the stream is not read, and HTTP/2
pushes back.

Why answers are written by whoever brings them: a task for each append and one that is woken to
write took longer than all else that a stream does for a small append. The task that writes is for
answers that find the peer's window shut.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import anyio

from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.failures import refusal_of
from broker.edge.rpc.middleware import Call
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.node.appender_messages import AppendOutcome
from broker.node.directory_messages import Located
from broker.transport import Stalled
from schemas.encoding.frames import FrameTooLarge, frames
from schemas.encoding.varint import Malformed

REQUEST_OVERHEAD_BYTES: Final = 512
"""What a request holds beside its bytes, so that empty messages are bounded too."""
BACKLOG_PAUSE_S: Final = 0.005
LEFT_GRACE_S: Final = 0.5
"""After the pchannel left: what arrives meanwhile learns in its answer that it was not stored."""

GONE_CODES: Final = frozenset({StreamingCode.ON_SHUTDOWN, StreamingCode.CHANNEL_FENCED})
"""In an answer these say that the pchannel left this node: the stream can do no more."""


class AppendFlow:
    """For one stream, the one of `call`."""

    def __init__(self, call: Call, located: Located, limits: EdgeLimits) -> None:
        self._call = call
        self._stream = call.stream
        self._located = located
        self._limits = limits
        self._reading = anyio.CancelScope()
        self._failure: Refusal | None = None
        self._inflight_cost = 0
        self._answered = asyncio.Event()
        self._answers: list[bytes] = []
        self._answers_cost = 0
        self._to_write = asyncio.Event()
        self._over = False

    async def run(self, read: Callable[[], Awaitable[None]]) -> None:
        """Until the client half-closed, the channel is gone or the server drains.

        Raises nothing that the peer can cause: what came before a fault is still answered.
        """
        self._call.end_with(self.end)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write)
                tasks.start_soon(self._end_when_left)
                with self._reading:
                    try:
                        await read()
                    except (Malformed, FrameTooLarge, Stalled) as error:
                        self._failure = refusal_of(error)
                with anyio.move_on_after(self._limits.append_deadline_s + self._limits.flush_s):
                    await self._until_inflight_is_at_most(0)
                tasks.cancel_scope.cancel()
        finally:
            self._over = True

    def raise_failure(self) -> None:
        """Refused, unless it ended as the client wished."""
        if self._failure is not None:
            raise Refused(self._failure.code, self._failure.cause)

    async def room(self, size_bytes: int) -> None:
        """Until so much fits behind what waits to be appended."""
        backlog = self._located.backlog
        while backlog.bytes_waiting and backlog.bytes_waiting + size_bytes > backlog.bytes_max:
            # Others may fill it as well, so an own answer is a hint and no more.
            self._answered.clear()
            with anyio.move_on_after(BACKLOG_PAUSE_S):
                await self._answered.wait()

    async def breathe(self) -> None:
        """Until no more is unanswered than may be."""
        await self._until_inflight_is_at_most(self._limits.produce_inflight_bytes_max)

    def asked(self, cost: int) -> None:
        """So much is to be answered."""
        self._inflight_cost += cost

    def answer(self, answers: list[bytes], cost: int) -> None:
        """Send these after all that came before; they answer so much of what was asked."""
        if self._over:
            return
        if self._answers or not self._stream.write_at_once(frames(answers)):
            self._answers += answers
            self._answers_cost += cost
            self._to_write.set()
        else:
            self._settle(cost)

    def heed(self, outcomes: Iterable[AppendOutcome]) -> None:
        """End it when one of them says that the channel is gone."""
        for outcome in outcomes:
            if isinstance(outcome, Refusal) and outcome.code in GONE_CODES:
                self.end(Refusal(StreamingCode.ON_SHUTDOWN, outcome.cause))
                return

    def end(self, refusal: Refusal) -> None:
        """Stop reading; the rest follows in `run`."""
        if self._failure is None:
            self._failure = refusal
        self._reading.cancel()

    async def _until_inflight_is_at_most(self, cost_max: int) -> None:
        while self._inflight_cost > cost_max:
            self._answered.clear()
            await self._answered.wait()

    async def _write(self) -> None:
        """What waits for the peer. It stays in `_answers` meanwhile, so that nothing passes it."""
        while True:
            await self._to_write.wait()
            self._to_write.clear()
            while self._answers:
                answers, cost = self._answers[:], self._answers_cost
                await self._stream.write_batch(answers)
                del self._answers[: len(answers)]
                self._answers_cost -= cost
                self._settle(cost)

    def _settle(self, cost: int) -> None:
        self._inflight_cost -= cost
        self._answered.set()

    async def _end_when_left(self) -> None:
        """A producer that has nothing to say would otherwise find out at its next append."""
        await self._located.left.wait()
        await anyio.sleep(LEFT_GRACE_S)
        channel = self._located.channel
        cause = f"{channel.name} left term {channel.term}; locate the channel again"
        self.end(Refusal(StreamingCode.ON_SHUTDOWN, cause))
