"""Measures Produce and Consume with a client whose bytes on the wire are those of grpc-go."""

import asyncio
import time
from random import Random
from typing import Any

from benchmark.baselines.disk import BODY
from benchmark.grpc_go.connection import Connection
from benchmark.grpc_go.messages import ProduceRequests
from benchmark.grpc_go.streams import Stream
from benchmark.measures.milvus_protocol import IN_FLIGHT
from benchmark.results.figures import RATE
from broker.client.cluster.targets import NewVChannel
from broker.client.net.control_messages import (
    CONSUME,
    DISCOVER,
    PRODUCE,
    consumer_metadata,
    create_consumer,
    producer_metadata,
    read_assignment,
)
from broker.model.channel import PChannel
from broker.model.ids import MessageId, NodeId
from broker.model.position import StartFrom
from schemas.encoding.frames import HEAD_BYTES
from schemas.wire import (
    Consumed,
    Created,
    Produced,
    ProduceFailed,
    scan_consume_response,
    scan_produce_response,
)

INSERT = "2"
VCHANNEL = NewVChannel("by-dev-rootcoord-dml_5_6v0")
PCHANNEL = VCHANNEL.rpartition("_")[0]
PROPERTIES = (
    (b"_t", b"2"), (b"_v", b"2"), (b"_h", b""), (b"_vc", VCHANNEL.encode()),
)  # fmt: skip
ANSWER_S_MAX = 30.0


class GoClients:
    """Produces to one server and consumes from it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._first_id, self._held = 1, 0

    async def produce(self, messages: int) -> dict[str, float]:
        """Send with 1,000 messages in flight."""
        connection = await Connection.open(self._address)
        try:
            producer = Producer(messages)
            channel, node = await _owner(connection)
            headers = producer_metadata(channel, node).items()
            producer.use(connection.call(PRODUCE, headers, producer.answered))
            async with asyncio.timeout(ANSWER_S_MAX):
                await producer.created
            started = time.perf_counter()
            producer.pump()
            await producer.done
            took_s = time.perf_counter() - started
            self._first_id, self._held = producer.first_id, messages
            return {RATE: messages / took_s, "messages": messages}
        finally:
            connection.close()

    async def consume(self, messages: int) -> dict[str, float]:
        """Read back everything that `produce` wrote."""
        if self._held < messages:
            await self.produce(messages)
        connection = await Connection.open(self._address)
        try:
            consumer = Consumer(self._first_id, self._held)
            channel, node = await _owner(connection)
            headers = consumer_metadata(channel, node).items()
            stream = connection.call(CONSUME, headers, consumer.received)
            stream.on_error = consumer.failed
            async with asyncio.timeout(ANSWER_S_MAX):
                await consumer.created
            started = time.perf_counter()
            policy = StartFrom(MessageId(self._first_id))
            stream.send(create_consumer(VCHANNEL, policy, ())[HEAD_BYTES:])
            await consumer.done
            took_s = time.perf_counter() - started
            return {RATE: self._held / took_s, "messages": self._held}
        finally:
            connection.close()


class Producer:
    """Sends requests while fewer than 1,000 have no answer."""

    def __init__(self, messages: int) -> None:
        loop = asyncio.get_running_loop()
        self.created: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self.first_id = 0
        self._stream: Stream | None = None
        self._requests = ProduceRequests(BODY, PROPERTIES, Random(11))
        self._wanted = messages
        self._sent = self._answered = 0

    def use(self, stream: Stream) -> None:
        """Send on this stream."""
        self._stream = stream
        stream.on_room = self.pump
        stream.on_error = self.failed

    def pump(self) -> None:
        """Send what the limits allow now."""
        assert self._stream is not None
        stop = min(self._wanted, self._answered + IN_FLIGHT)
        while self._sent < stop and self._stream.has_room:
            self._sent += 1
            self._stream.send(self._requests.request(self._sent))

    def answered(self, message: bytes) -> None:
        """Count an answer; a refusal ends the run."""
        match scan_produce_response(message):
            case Created():
                _settle(self.created)
            case Produced(message_id=message_id):
                self.first_id = self.first_id or message_id
                self._answered += 1
                if self._answered == self._wanted:
                    _settle(self.done)
                else:
                    self.pump()
            case ProduceFailed(cause=cause):
                self.failed(RuntimeError(f"a message was refused: {cause}"))
            case _:
                self.failed(RuntimeError(f"an unexpected answer: {message.hex()}"))

    def failed(self, error: Exception) -> None:
        """End the run with this error."""
        _fail(self.created, error)
        _fail(self.done, error)


class Consumer:
    """Counts messages up to the last one that is wanted."""

    def __init__(self, first_id: int, messages: int) -> None:
        loop = asyncio.get_running_loop()
        self.created: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self._wanted = messages

    def received(self, message: bytes) -> None:
        """Count a message."""
        answer = scan_consume_response(message)
        if isinstance(answer, Created):
            _settle(self.created)
        elif isinstance(answer, Consumed) and answer.properties.get("_t") == INSERT:
            self._wanted -= 1
            if self._wanted == 0:
                _settle(self.done)

    def failed(self, error: Exception) -> None:
        """End the run with this error."""
        _fail(self.created, error)
        _fail(self.done, error)


async def _owner(connection: Connection) -> tuple[PChannel, NodeId]:
    """The owner of the vchannel's log; the call stays open, as a Go client keeps it."""
    found: asyncio.Future[tuple[PChannel, NodeId]] = asyncio.get_running_loop().create_future()

    def received(message: bytes) -> None:
        assignment = read_assignment(message)
        for node in assignment.nodes if assignment else ():
            for channel in node.channels:
                if channel.name == PCHANNEL and not found.done():
                    found.set_result((channel, node.node_id))

    call = connection.call(DISCOVER, (), received)
    call.on_error = lambda error: _fail(found, error)
    async with asyncio.timeout(ANSWER_S_MAX):
        return await found


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # a run that failed elsewhere does not await each of them
