"""One Append stream of `tidemark.v1.Log`: batches in, answers out in the same order.

Owns the stream's batches in flight and the order of their answers. Never looks into a body, never
retries, never cancels what was accepted. Next: broker/node/intake.py

What the ends and the back-pressure of the stream are is told in `broker/edge/produce.py`; they are
the same here, without a last word before the status.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskGroup

from broker.edge.arrowable import Arrowable
from broker.edge.batchable import Batchable
from broker.edge.failures import refusal_of
from broker.edge.gate import Session
from broker.edge.headers import producer_channel
from broker.edge.limits import EdgeLimits
from broker.edge.produce import BACKLOG_PAUSE_S, GONE_CODES, LEFT_GRACE_S, REQUEST_OVERHEAD_BYTES
from broker.edge.reach import Reach
from broker.model.batch import Codec, Durability, NewBatch, ticks_of
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.message import Appended
from broker.model.producer import OutOfSequence
from broker.node.groups import BATCH_MESSAGES_MAX
from broker.node.intake import append
from broker.node.messages import AppendOutcome, Locate, Located
from broker.transport import Stalled
from schemas.batches import append_landed, append_refused, scan_append_request
from schemas.frames import FrameTooLarge, Oversize
from schemas.varint import Malformed

TOGETHER_BYTES_MAX: Final = 2 * 1024 * 1024
"""Batches that arrived together go to the Appender together, up to this."""


async def serve_append(
    session: Session, directory: Reach, arrowable: Arrowable, limits: EdgeLimits
) -> None:
    """The whole life of one stream; the refusals are those of `Locate` and of the header."""
    channel = producer_channel(session.metadata)
    located = await directory.demand(Locate(channel.name, channel.term, writes=True))
    session.stream.pass_over(limits.passed_over_bytes_max)
    await session.stream.write_batch([b""])
    with session.meters.producing(channel.name):
        await AppendStream(session, located, arrowable, limits).run()


@dataclass(slots=True)
class _Together:
    """Verdicts of batches that go to the Appender together, and then their answers.

    All of its batches are answered at one `durability`.
    """

    verdicts: list[NewBatch | Refusal]
    durability: Durability = Durability.FSYNC
    cost: int = 0
    ticks: int = 0
    answers: list[bytes] | None = None

    def takes(self, verdict: NewBatch | Refusal, cost: int, ticks: int) -> bool:
        if not self.verdicts:
            return True
        if isinstance(verdict, NewBatch) and verdict.durability is not self.durability:
            return False
        return self.cost + cost <= TOGETHER_BYTES_MAX and self.ticks + ticks <= BATCH_MESSAGES_MAX

    def add(self, verdict: NewBatch | Refusal, cost: int, ticks: int) -> None:
        if not self.verdicts and isinstance(verdict, NewBatch):
            self.durability = verdict.durability
        self.verdicts.append(verdict)
        self.cost += cost
        self.ticks += ticks


class AppendStream:
    """One reader, one writer of answers, and a task for all batches that arrived together."""

    def __init__(
        self, session: Session, located: Located, arrowable: Arrowable, limits: EdgeLimits
    ) -> None:
        self._session = session
        self._stream = session.stream
        self._located = located
        self._limits = limits
        self._arrowable = arrowable
        self._batchable = Batchable(located.channel.name, limits.message_bytes_max)
        self._reading = anyio.CancelScope()
        self._failure: Refusal | None = None
        self._in_order: deque[_Together] = deque()
        self._inflight_cost = 0
        self._changed = anyio.Event()
        self._answered = anyio.Event()

    async def run(self) -> None:
        """Until the client half-closed, the channel is gone or the server drains."""
        self._session.end_with(self._end)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_answers)
            tasks.start_soon(self._end_when_left)
            with self._reading:
                await self._read_requests(tasks)
            with anyio.move_on_after(self._limits.append_deadline_s + self._limits.flush_s):
                await self._until_inflight_is_at_most(0)
            tasks.cancel_scope.cancel()
        if self._failure is not None:
            raise Refused(self._failure.code, self._failure.cause)

    async def _read_requests(self, tasks: TaskGroup) -> None:
        """What came before a fault is still answered."""
        try:
            while frames := await self._stream.read_batch():
                await self._take(frames, tasks)
        except (Malformed, FrameTooLarge, Stalled) as error:
            self._failure = refusal_of(error)

    async def _take(self, frames: list[bytes], tasks: TaskGroup) -> None:
        together = _Together([])
        try:
            for frame in frames:
                verdict = await self._verdict(frame)
                cost = REQUEST_OVERHEAD_BYTES
                ticks = 0
                if isinstance(verdict, NewBatch):
                    cost, ticks = cost + verdict.size, ticks_of(verdict)
                if not together.takes(verdict, cost, ticks):
                    await self._hand_over(together, tasks)
                    together = _Together([])
                together.add(verdict, cost, ticks)
        finally:
            if together.verdicts:
                await self._hand_over(together, tasks)

    async def _verdict(self, frame: bytes) -> NewBatch | Refusal:
        if isinstance(frame, Oversize):
            error = FrameTooLarge(self._limits.frame_bytes_max, frame.length)
            return Refusal(StreamingCode.INVALID_ARGUMENT, f"{error}; split the batch")
        batch = scan_append_request(frame)
        if batch.codec == Codec.ARROW:
            return await self._arrowable.judge(batch, self._batchable)
        return self._batchable.judge(batch)

    async def _hand_over(self, together: _Together, tasks: TaskGroup) -> None:
        backlog, size = self._located.backlog, together.cost
        while backlog.bytes_waiting and backlog.bytes_waiting + size > backlog.bytes_max:
            # Others may fill it as well, so an own answer is a hint and no more.
            self._answered = anyio.Event()
            with anyio.move_on_after(BACKLOG_PAUSE_S):
                await self._answered.wait()
        self._inflight_cost += together.cost
        self._in_order.append(together)
        tasks.start_soon(self._append, together)
        await self._until_inflight_is_at_most(self._limits.produce_inflight_bytes_max)

    async def _append(self, together: _Together) -> None:
        batches = tuple([it for it in together.verdicts if isinstance(it, NewBatch)])
        outcomes: tuple[AppendOutcome, ...] = ()
        if batches:
            deadline_s = self._limits.append_deadline_s
            level = together.durability
            outcomes = await append(self._located, batches, deadline_s=deadline_s, durability=level)
        landed = iter(outcomes)
        together.answers = [
            _answer(it if isinstance(it, Refusal) else next(landed), together.durability)
            for it in together.verdicts
        ]
        together.verdicts.clear()  # bodies of an answered batch are held no longer than needed
        self._changed.set()
        for outcome in outcomes:
            if isinstance(outcome, Refusal) and outcome.code in GONE_CODES:
                self._end(Refusal(StreamingCode.ON_SHUTDOWN, outcome.cause))
                break

    async def _send_answers(self) -> None:
        in_order = self._in_order
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            answers: list[bytes] = []
            cost = 0
            while in_order and in_order[0].answers is not None:
                answered = in_order.popleft()
                answers += answered.answers or ()
                cost += answered.cost
            if answers:
                await self._stream.write_batch(answers)
                self._inflight_cost -= cost
                self._answered.set()

    async def _until_inflight_is_at_most(self, cost_max: int) -> None:
        while self._inflight_cost > cost_max:
            self._answered = anyio.Event()
            await self._answered.wait()

    async def _end_when_left(self) -> None:
        """A producer that has nothing to say would otherwise find out at its next batch."""
        await self._located.left.wait()
        await anyio.sleep(LEFT_GRACE_S)
        channel = self._located.channel
        cause = f"{channel.name} left term {channel.term}; locate the channel again"
        self._end(Refusal(StreamingCode.ON_SHUTDOWN, cause))

    def _end(self, refusal: Refusal) -> None:
        """Stop reading; the rest follows in `run`."""
        if self._failure is None:
            self._failure = refusal
        self._reading.cancel()


def _answer(outcome: Appended | Refusal, durability: Durability) -> bytes:
    if isinstance(outcome, Appended):
        return append_landed(outcome.id, outcome.tick, outcome.last_confirmed_id, durability)
    expected = outcome.expected if isinstance(outcome, OutOfSequence) else 0
    return append_refused(outcome.code, outcome.cause, expected)
