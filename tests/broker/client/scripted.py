"""A small server that speaks the protocol and misbehaves at the moments a test names.

It keeps one pchannel in memory. It is no model of the broker: it only stores, delivers, and cuts.
"""

import asyncio
from base64 import b64decode
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NoReturn

import anyio
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from broker.model.failure import StreamingCode
from broker.model.message import MessageType
from broker.transport import Listener, ListenerLimits, ServerBatchStream
from schemas import batches
from schemas.batches import ScannedBatch, append_landed
from schemas.generated.milvus.proto import streaming
from schemas.generated.tidemark import v1
from schemas.handshake import APPEND_REVISION, append_greeting
from schemas.properties.txn_context import TxnContext
from schemas.status import StreamingError, grpc_code, status_details
from schemas.wire import (
    Close,
    ScannedProduce,
    consume_message,
    consume_time_tick,
    produce_error,
    produce_result,
    produce_result_in_txn,
    rocksmq_id,
    scan_produce_request,
)
from tests.broker.client.scripted_batches import single_messages

PCHANNEL = "by-dev-rootcoord-dml_0"
VCHANNEL = f"{PCHANNEL}_1v0"
HANDLER = "/milvus.proto.streaming.StreamingNodeHandlerService/"
DISCOVER = "/milvus.proto.streaming.StreamingCoordAssignmentService/AssignmentDiscover"
COMMIT = "/tidemark.v1.Commits/Commit"
BROADCAST = "/milvus.proto.streaming.StreamingCoordBroadcastService/Broadcast"
FIRST_TICK = 1000
GUARD_S = 60.0
TXN = TxnContext(7, 10_000)
"""Of every begin."""


class Cut(Enum):
    """How a stream ends before its time."""

    STATUS = auto()
    CRASH = auto()
    HANG_UP = auto()


@dataclass(frozen=True)
class Stored:
    """One message of the log."""

    id: int
    tick: int
    vchannel: str
    body: bytes


class ScriptedBroker:
    """What it does wrong is set on it; by default nothing."""

    def __init__(self) -> None:
        self.log: list[Stored] = []
        self.first_id = 1
        self.term = 2
        self.address = ""
        self.cut = Cut.STATUS
        self.lose_requests = 0
        """So many requests cut their stream before they are stored."""
        self.lose_replies = 0
        """So many requests cut their stream after they were stored."""
        self.silent = False
        """Store, but never answer."""
        self.revision = 0
        """What it says it knows of batches; 0 is a server of an earlier release."""
        self.level = 0
        """How durable a batch is said to be."""
        self.refusals: deque[StreamingCode] = deque()
        """The next requests are refused with these."""
        self.describe_refusals: deque[StreamingCode] = deque()
        """The next questions about offsets are refused with these."""
        self.frames_per_stream: int | None = None
        """Consume streams are cut after so many messages."""
        self.on_cut: Callable[[], None] = lambda: None
        """Done at the moment a stream is cut."""
        self.serving = True
        """Whether the assignment table has the pchannel."""
        self.numbers: dict[tuple[str, int], list[Stored]] = {}
        """Batches that were stored, by their numbers."""
        self.forgetful = False
        """Knows no producer's numbers any more."""
        self.reports: list[tuple[str, int]] = []
        self.opened_terms: list[int] = []
        self.consumers_open = 0
        self.hanging = 0
        """Commits and broadcasts that were asked for; they are never answered."""
        self._changed = anyio.Event()
        self._version = 0

    def __mapping__(self) -> Mapping[str, Handler]:
        streams = {
            HANDLER + "Produce": self._produce,
            HANDLER + "Consume": self._consume,
            "/tidemark.v1.Log/Append": self._append_batches,
            DISCOVER: self._discover,
        }
        return {
            path: Handler(method, Cardinality.STREAM_STREAM, bytes, bytes)
            for path, method in streams.items()
        } | {
            "/tidemark.v1.Log/Describe": Handler(
                self._describe, Cardinality.UNARY_UNARY, v1.DescribeRequest, v1.DescribeResponse
            ),
            COMMIT: Handler(
                self._hang, Cardinality.UNARY_UNARY, v1.CommitBatchRequest, v1.CommitBatchResponse
            ),
            BROADCAST: Handler(
                self._hang,
                Cardinality.UNARY_UNARY,
                streaming.BroadcastRequest,
                streaming.BroadcastResponse,
            ),
        }

    def store(self, body: bytes, vchannel: str = VCHANNEL) -> Stored:
        """Put a message at the end of the log."""
        number = len(self.log) + 1
        stored = Stored(number, FIRST_TICK + number, vchannel, body)
        self.log.append(stored)
        self.announce()
        return stored

    def announce(self) -> None:
        """Let everybody look again."""
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something stored, opened or closed makes `condition` true."""
        async with asyncio.timeout(GUARD_S):
            while not condition():
                await self._changed.wait()

    def reassign(self) -> None:
        """The pchannel gets a new owner."""
        self.term += 1
        self.announce()

    async def _discover(self, call: "Stream[bytes, bytes]") -> None:
        stream = _batched(call)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, stream)
            while True:
                changed = self._changed
                await stream.write_batch([self._table()])
                await changed.wait()

    async def _listen(self, stream: ServerBatchStream) -> None:
        while messages := await stream.read_batch():
            for message in messages:
                report = streaming.AssignmentDiscoverRequest.parse(message).report_error
                if report is not None and report.pchannel is not None:
                    self.reports.append((report.pchannel.name, report.pchannel.term))
                    self.reassign()

    def _table(self) -> bytes:
        self._version += 1
        channel = streaming.PChannelInfo(name=PCHANNEL, term=self.term)
        return bytes(
            streaming.AssignmentDiscoverResponse(
                full_assignment=streaming.FullStreamingNodeAssignmentWithVersion(
                    assignments=[
                        streaming.StreamingNodeAssignment(
                            node=streaming.StreamingNodeInfo(server_id=1, address=self.address),
                            channels=[channel] if self.serving else [],
                        )
                    ],
                    cchannel=streaming.CChannelAssignment(
                        meta=streaming.CChannelMeta(pchannel=PCHANNEL)
                    ),
                    version_by_revision=streaming.VersionPair(global_=1, local=self._version),
                )
            )
        )

    async def _produce(self, call: "Stream[bytes, bytes]") -> None:
        self._opened(call)
        stream = _batched(call)
        create = streaming.CreateProducerResponse(wal_name="rocksmq")
        await stream.write_batch([bytes(streaming.ProduceResponse(create=create))])
        while messages := await stream.read_batch():
            for message in messages:
                request = scan_produce_request(message)
                if isinstance(request, ScannedProduce):
                    await self._append(call, stream, request)
                else:
                    assert isinstance(request, Close)
        await stream.write_batch(
            [bytes(streaming.ProduceResponse(close=streaming.CloseProducerResponse()))]
        )

    async def _append_batches(self, call: "Stream[bytes, bytes]") -> None:
        self._opened(call)
        stream = _batched(call)
        knows = self.revision and APPEND_REVISION in (call.metadata or {})
        await stream.write_batch([append_greeting(self.revision) if knows else b""])
        while messages := await stream.read_batch():
            for message in messages:
                await self._append_batch(call, stream, batches.scan_append_request(message))

    async def _append_batch(
        self, call: "Stream[bytes, bytes]", stream: ServerBatchStream, batch: ScannedBatch
    ) -> None:
        if self.lose_requests:
            self.lose_requests -= 1
            await self._cut(call)
        refusal = self._refusal_of(batch)
        if refusal:
            return await stream.write_batch([refusal])
        number = batch.producer, batch.sequence
        if number not in self.numbers:
            self.numbers[number] = self._store_batch(batch)
        if self.lose_replies:
            self.lose_replies -= 1
            await self._cut(call)
        if not self.silent:
            first = self.numbers[number][0]
            await stream.write_batch([append_landed(first.id, first.tick, first.id, self.level)])
        return None

    def _refusal_of(self, batch: ScannedBatch) -> bytes:
        if self.refusals:
            return batches.append_refused(int(self.refusals.popleft()), "scripted")
        if batch.own_sizes and not self.revision:
            return batches.append_refused(int(StreamingCode.INVALID_ARGUMENT), "_own is reserved")
        if (batch.producer, batch.sequence) in self.numbers:
            return b""
        if self.forgetful:
            self.numbers.clear()
        ends = [at + len(it) for (name, at), it in self.numbers.items() if name == batch.producer]
        if batch.sequence != max(ends, default=0):
            code = int(StreamingCode.INVALID_REQUEST_SEQ)
            return batches.append_refused(code, "scripted", max(ends, default=0))
        return b""

    def _store_batch(self, batch: ScannedBatch) -> list[Stored]:
        return [self.store(body, batch.vchannel) for body in single_messages(batch)]

    def _opened(self, call: "Stream[bytes, bytes]") -> None:
        header = str(call.metadata["create-producer"]) if call.metadata else ""
        created = streaming.CreateProducerRequest.parse(b64decode(header))
        assert created.pchannel is not None
        self.opened_terms.append(created.pchannel.term)

    async def _append(
        self, call: "Stream[bytes, bytes]", stream: ServerBatchStream, request: ScannedProduce
    ) -> None:
        if self.lose_requests:
            self.lose_requests -= 1
            await self._cut(call)
        if self.refusals:
            answer = produce_error(request.request_id, int(self.refusals.popleft()), "scripted")
            return await stream.write_batch([answer])
        stored = self.store(request.message.stored, request.message.vchannel)
        if self.lose_replies:
            self.lose_replies -= 1
            await self._cut(call)
        if not self.silent:
            where = request.request_id, stored.id, stored.tick, stored.id
            if request.message.type == MessageType.BEGIN_TXN:
                await stream.write_batch([produce_result_in_txn(*where, TXN.encode())])
            else:
                await stream.write_batch([produce_result(*where)])
        return None

    async def _consume(self, call: "Stream[bytes, bytes]") -> None:
        stream = _batched(call)
        create = streaming.CreateConsumerResponse(wal_name="rocksmq")
        await stream.write_batch([bytes(streaming.ConsumeResponse(create=create))])
        first, *_ = await stream.read_batch()
        wanted = streaming.ConsumeRequest.parse(first).create_vchannel_consumer
        assert wanted is not None
        start_id, after_tick = self._start(wanted)
        vchannel = streaming.CreateVChannelConsumerResponse(consumer_id=1)
        await stream.write_batch([bytes(streaming.ConsumeResponse(create_vchannel=vchannel))])
        self.consumers_open += 1
        self.announce()
        try:
            await self._deliver(call, stream, start_id, after_tick)
        finally:
            self.consumers_open -= 1
            self.announce()

    def _start(self, wanted: streaming.CreateVChannelConsumerRequest) -> tuple[int, int]:
        """The first id and the tick to be above; refuses what retention took."""
        policy = wanted.deliver_policy
        assert policy is not None
        start_id = rocksmq_id(policy.start_from.id) if policy.start_from else self.first_id
        if start_id < self.first_id:
            raise refusal_of(StreamingCode.UNRECOVERABLE, f"[{start_id}, {self.first_id}) is gone")
        ticks = [it.time_tick_gt.time_tick for it in wanted.deliver_filters if it.time_tick_gt]
        return start_id, max(ticks, default=0)

    async def _deliver(
        self, call: "Stream[bytes, bytes]", stream: ServerBatchStream, start_id: int, after: int
    ) -> None:
        left = self.frames_per_stream
        position = start_id - 1
        while True:
            changed = self._changed
            for it in self.log[position:]:
                position = it.id
                if it.tick <= after:
                    continue
                if left == 0:
                    await self._cut(call)
                await stream.write_batch([consume_message(it.id, it.tick, it.id, 2, it.body)])
                left = None if left is None else left - 1
            tick = FIRST_TICK + len(self.log)
            last_id = max(len(self.log), 1)
            await stream.write_batch([consume_time_tick(last_id, tick, last_id, 2, False, 1)])
            await changed.wait()

    async def _hang(self, call: "Stream[Any, Any]") -> None:
        await call.recv_message()
        self.hanging += 1
        self.announce()
        await anyio.sleep_forever()

    async def _describe(self, call: "Stream[v1.DescribeRequest, v1.DescribeResponse]") -> None:
        request = await call.recv_message()
        assert request is not None
        if self.describe_refusals:
            raise refusal_of(self.describe_refusals.popleft(), "scripted")
        offsets = [
            v1.ChannelOffsets(
                channel=str(name),
                first_id=self.first_id,
                next_id=len(self.log) + 1,
                closed_tick=FIRST_TICK + len(self.log),
                term=self.term,
            )
            for name in request.channels
        ]
        await call.send_message(v1.DescribeResponse(channels=offsets))

    async def _cut(self, call: "Stream[bytes, bytes]") -> NoReturn:
        """What was written before is on its way first: the socket is written once a loop turn."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.on_cut()
        match self.cut:
            case Cut.STATUS:
                raise refusal_of(StreamingCode.ON_SHUTDOWN, "scripted")
            case Cut.CRASH:
                raise GRPCError(Status.UNKNOWN, "scripted")
            case Cut.HANG_UP:
                call._stream._transport.close()
                raise GRPCError(Status.UNAVAILABLE, "scripted")


def refusal_of(code: StreamingCode, cause: str) -> GRPCError:
    error = StreamingError(int(code), cause)
    return GRPCError(Status(grpc_code(code)), "", status_details(error))


def _batched(call: "Stream[bytes, bytes]") -> ServerBatchStream:
    return ServerBatchStream(call, limit_bytes=1 << 24, stall_s=5)


@asynccontextmanager
async def scripted_broker(
    *more: Any, broker: ScriptedBroker | None = None
) -> AsyncIterator[ScriptedBroker]:
    """A server on loopback for as long as the block runs; `more`: services beside its own."""
    broker = broker or ScriptedBroker()
    listener = Listener([broker, *more], ListenerLimits())
    await listener.listen("127.0.0.1", 0)
    broker.address = f"127.0.0.1:{listener.port}"
    try:
        yield broker
    finally:
        with anyio.move_on_after(2):
            await listener.hang_up()
