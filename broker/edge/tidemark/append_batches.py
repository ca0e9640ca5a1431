"""One Append stream of `tidemark.v1.Log`: batches in, answers out in the same order.

Owns the stream's batches in flight and the order of their answers. Never looks into a body, never
retries, never cancels what was accepted.

`broker/edge/rpc/append_flow.py` describes how the stream ends and its back-pressure.
"""

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker.edge.rpc.append_flow import REQUEST_OVERHEAD_BYTES, AppendFlow
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.middleware import Call
from broker.edge.rpc.proxies import Proxy
from broker.edge.rpc.request_metadata import producer_channel
from broker.edge.tidemark.batch_admission import BatchAdmission
from broker.edge.tidemark.rows_admission import RowsAdmission
from broker.model.batch import Codec, Durability, NewBatch, ticks_of
from broker.model.failure import Refusal, StreamingCode
from broker.model.message import Appended
from broker.model.producer_numbers import OutOfSequence
from broker.node.append.group_commit import BATCH_MESSAGES_MAX
from broker.node.append.intake import append_then
from broker.node.appender_messages import AppendOutcome
from broker.node.directory_messages import Locate, Located
from schemas.batches import append_landed, append_refused, scan_append_request
from schemas.encoding.frames import FrameTooLarge, Oversize

TOGETHER_BYTES_MAX: Final = 2 * 1024 * 1024
"""Batches that arrived together go to the Appender together, up to this."""


async def serve_append(
    call: Call, directory: Proxy, rows_admission: RowsAdmission, limits: EdgeLimits
) -> None:
    """The whole life of one stream; the refusals are those of `Locate` and of the header."""
    channel = producer_channel(call.metadata)
    located = await directory.demand(Locate(channel.name, channel.term, writes=True))
    call.stream.pass_over(limits.passed_over_bytes_max)
    await call.stream.write_batch([b""])
    with call.meters.producing(channel.name):
        await AppendStream(call, located, rows_admission, limits).run()


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
    """One reader; batches that arrived together are answered together."""

    def __init__(
        self, call: Call, located: Located, rows_admission: RowsAdmission, limits: EdgeLimits
    ) -> None:
        self._stream = call.stream
        self._flow = AppendFlow(call, located, limits)
        self._located = located
        self._limits = limits
        self._rows_admission = rows_admission
        self._admission = BatchAdmission(located.channel.name, limits.message_bytes_max)
        self._in_order: deque[_Together] = deque()

    async def run(self) -> None:
        """Until the client half-closed, the channel is gone or the server drains."""
        await self._flow.run(self._read_requests)
        self._flow.raise_failure()

    async def _read_requests(self) -> None:
        while frames := await self._stream.read_batch():
            await self._take(frames)

    async def _take(self, frames: list[bytes]) -> None:
        together = _Together([])
        try:
            for frame in frames:
                verdict = await self._verdict(frame)
                cost = REQUEST_OVERHEAD_BYTES
                ticks = 0
                if isinstance(verdict, NewBatch):
                    cost, ticks = cost + verdict.size, ticks_of(verdict)
                if not together.takes(verdict, cost, ticks):
                    await self._hand_over(together)
                    together = _Together([])
                together.add(verdict, cost, ticks)
        finally:
            if together.verdicts:
                await self._hand_over(together)

    async def _verdict(self, frame: bytes) -> NewBatch | Refusal:
        if isinstance(frame, Oversize):
            error = FrameTooLarge(self._limits.frame_bytes_max, frame.length)
            return Refusal(StreamingCode.INVALID_ARGUMENT, f"{error}; split the batch")
        batch = scan_append_request(frame)
        if batch.codec == Codec.ARROW:
            return await self._rows_admission.judge(batch, self._admission)
        return self._admission.judge(batch)

    async def _hand_over(self, together: _Together) -> None:
        await self._flow.room(together.cost)
        self._flow.asked(together.cost)
        self._in_order.append(together)
        answered = partial(self._settle, together)
        batches = tuple([it for it in together.verdicts if isinstance(it, NewBatch)])
        if batches:
            deadline_s = self._limits.append_deadline_s
            level = together.durability
            append_then(self._located, batches, answered, deadline_s=deadline_s, durability=level)
        else:
            answered(())
        await self._flow.breathe()

    def _settle(self, together: _Together, outcomes: tuple[AppendOutcome, ...]) -> None:
        landed = iter(outcomes)
        together.answers = [
            _answer(it if isinstance(it, Refusal) else next(landed), together.durability)
            for it in together.verdicts
        ]
        together.verdicts.clear()  # bodies of an answered batch are held no longer than needed
        self._answer_in_order()
        self._flow.heed(outcomes)

    def _answer_in_order(self) -> None:
        in_order = self._in_order
        answers: list[bytes] = []
        cost = 0
        while in_order and in_order[0].answers is not None:
            answered = in_order.popleft()
            answers += answered.answers or ()
            cost += answered.cost
        if answers:
            self._flow.answer(answers, cost)


def _answer(outcome: Appended | Refusal, durability: Durability) -> bytes:
    if isinstance(outcome, Appended):
        return append_landed(outcome.id, outcome.tick, outcome.last_confirmed_id, durability)
    expected = outcome.expected if isinstance(outcome, OutOfSequence) else 0
    return append_refused(outcome.code, outcome.cause, expected)
