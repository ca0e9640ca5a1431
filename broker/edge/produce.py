"""One Produce stream: requests in, results out, in whatever order the appends finish.

Owns the stream's in-flight bytes and its results on their way out. Never decodes a payload, never
retries an append, never cancels one that was accepted: what it handed over is answered by the
Appender even when nobody reads the answer. Next: broker/node/intake.py

Order of ends (facts of the wire, 3.2): whatever ends the stream, requests are no longer read, the
ones in flight get their results, then `close{}`, then the status. Back-pressure: while
`produce_inflight_bytes_max` bytes are unanswered or unread the stream is not read, and HTTP/2
pushes back.
"""

from typing import Final

import anyio
from anyio.abc import TaskGroup

from broker.edge.appendable import Appendable
from broker.edge.failures import refusal_of
from broker.edge.gate import Session
from broker.edge.headers import producer_channel
from broker.edge.limits import EdgeLimits
from broker.edge.reach import Reach
from broker.edge.results import produce_answer
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.message import NewMessage
from broker.node.intake import append
from broker.node.messages import Locate, Located
from broker.transport import Stalled
from schemas.frames import FrameTooLarge, Oversize
from schemas.generated.milvus.proto.streaming import (
    CloseProducerResponse,
    CreateProducerResponse,
    ProduceResponse,
)
from schemas.wire import (
    Malformed,
    ScannedProduce,
    produce_error,
    request_id_at,
    scan_produce_request,
)

REQUEST_OVERHEAD_BYTES: Final = 512
"""What a request holds beside its bytes, so that empty messages are bounded too."""
BATCH_MESSAGES_MAX: Final = 256
"""Small enough that the next batch is read while the first one syncs."""
BACKLOG_PAUSE_S: Final = 0.005
LEFT_GRACE_S: Final = 0.5
"""After the pchannel left: what arrives meanwhile learns in its result that it was not stored."""

CLOSE: Final = bytes(ProduceResponse(close=CloseProducerResponse()))
GONE_CODES: Final = frozenset({StreamingCode.ON_SHUTDOWN, StreamingCode.CHANNEL_FENCED})
"""In a result these say that the pchannel left this node: the stream can do no more."""


async def serve_produce(
    session: Session, directory: Reach, wal_name: str, limits: EdgeLimits
) -> None:
    """The whole life of one stream; the refusals are those of `Locate` and of the header."""
    channel = producer_channel(session.metadata)
    located = await directory.demand(Locate(channel.name, channel.term, writes=True))
    created = ProduceResponse(create=CreateProducerResponse(wal_name=wal_name))
    session.stream.pass_over(limits.passed_over_bytes_max)
    await session.stream.write_batch([bytes(created)])
    with session.meters.producing(channel.name):
        await ProduceStream(session, located, limits).run()


class ProduceStream:
    """One reader, one writer of results, and a task for each batch in flight."""

    def __init__(self, session: Session, located: Located, limits: EdgeLimits) -> None:
        self._session = session
        self._stream = session.stream
        self._located = located
        self._limits = limits
        self._appendable = Appendable(located.channel.name, limits.message_bytes_max)
        self._reading = anyio.CancelScope()
        self._failure: Refusal | None = None
        self._results: list[bytes] = []
        self._results_cost = 0
        self._inflight_cost = 0
        self._changed = anyio.Event()
        self._answered = anyio.Event()

    async def run(self) -> None:
        """Until the client half-closed, the channel is gone or the server drains."""
        self._session.end_with(self._end)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_results)
            tasks.start_soon(self._end_when_left)
            with self._reading:
                await self._read_requests(tasks)
            with anyio.move_on_after(self._limits.append_deadline_s + self._limits.flush_s):
                await self._until_inflight_is_at_most(0)
            tasks.cancel_scope.cancel()
        await self._stream.write_batch([CLOSE], deadline_s=self._limits.flush_s)
        if self._failure is not None:
            raise Refused(self._failure.code, self._failure.cause)

    async def _read_requests(self, tasks: TaskGroup) -> None:
        """Raises nothing that the peer can cause: what came before a fault is still answered."""
        try:
            while frames := await self._stream.read_batch():
                for first in range(0, len(frames), BATCH_MESSAGES_MAX):
                    await self._take(frames[first : first + BATCH_MESSAGES_MAX], tasks)
        except (Malformed, FrameTooLarge, Stalled) as error:
            self._failure = refusal_of(error)

    async def _take(self, frames: list[bytes], tasks: TaskGroup) -> None:
        request_ids: list[int] = []
        messages: list[NewMessage] = []
        refused: list[bytes] = []
        judge = self._appendable.judge
        try:
            for frame in frames:
                if isinstance(frame, Oversize):
                    refused.append(self._too_large(frame))
                    continue
                request = scan_produce_request(frame)
                if not isinstance(request, ScannedProduce):
                    continue  # close{} says nothing before the half-close; nor do unknown requests
                verdict = judge(request.message)
                if isinstance(verdict, NewMessage):
                    request_ids.append(request.request_id)
                    messages.append(verdict)
                else:
                    refused.append(produce_error(request.request_id, verdict.code, verdict.cause))
        finally:
            if refused:
                cost = len(refused) * REQUEST_OVERHEAD_BYTES
                self._inflight_cost += cost
                self._answer(refused, cost)
            if messages:
                await self._hand_over(request_ids, tuple(messages), tasks)
        await self._until_inflight_is_at_most(self._limits.produce_inflight_bytes_max)

    def _too_large(self, frame: Oversize) -> bytes:
        request_id = request_id_at(frame)
        error = FrameTooLarge(self._limits.frame_bytes_max, frame.length)
        if request_id is None:
            raise error
        return produce_error(request_id, StreamingCode.UNRECOVERABLE, f"{error}; split the message")

    async def _hand_over(
        self, request_ids: list[int], messages: tuple[NewMessage, ...], tasks: TaskGroup
    ) -> None:
        size = sum([message.size for message in messages])
        backlog = self._located.backlog
        while backlog.bytes_waiting and backlog.bytes_waiting + size > backlog.bytes_max:
            # Others may fill it as well, so an own answer is a hint and no more.
            self._answered = anyio.Event()
            with anyio.move_on_after(BACKLOG_PAUSE_S):
                await self._answered.wait()
        self._inflight_cost += size + len(messages) * REQUEST_OVERHEAD_BYTES
        tasks.start_soon(self._append, request_ids, messages, size)

    async def _append(
        self, request_ids: list[int], messages: tuple[NewMessage, ...], size: int
    ) -> None:
        outcomes = await append(self._located, messages, deadline_s=self._limits.append_deadline_s)
        results = [
            produce_answer(request_id, message.type, outcome)
            for request_id, message, outcome in zip(request_ids, messages, outcomes, strict=True)
        ]
        self._answer(results, size + len(messages) * REQUEST_OVERHEAD_BYTES)
        for outcome in outcomes:
            if isinstance(outcome, Refusal) and outcome.code in GONE_CODES:
                self._end(Refusal(StreamingCode.ON_SHUTDOWN, outcome.cause))
                break

    def _answer(self, results: list[bytes], cost: int) -> None:
        self._results += results
        self._results_cost += cost
        self._changed.set()

    async def _send_results(self) -> None:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            results, self._results = self._results, []
            cost, self._results_cost = self._results_cost, 0
            await self._stream.write_batch(results)
            self._inflight_cost -= cost
            self._answered.set()

    async def _until_inflight_is_at_most(self, cost_max: int) -> None:
        while self._inflight_cost > cost_max:
            self._answered = anyio.Event()
            await self._answered.wait()

    async def _end_when_left(self) -> None:
        """A producer that has nothing to say would otherwise find out at its next append."""
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
