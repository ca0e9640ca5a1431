"""An independent gRPC peer: grpcio's own client, with raw bytes in and out."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import grpc
import grpc.aio

from schemas.handshake import CREATE_CONSUMER, CREATE_PRODUCER, CreateHeader
from schemas.status import StreamingError, read_status_details
from schemas.wire import message, produce_request
from tests.create_headers import create_header
from tests.wire.small_broker import CONSUME, FIRST_TERM, P0, PRODUCE, V0, SmallBroker

ANSWER_S = 60.0
DETAILS = "grpc-status-details-bin"
LOST = grpc.StatusCode.UNAVAILABLE
"""The connection; a broker never says so, and the words are grpc's own."""
BIG: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.max_receive_message_length", 64 << 20),
)


@asynccontextmanager
async def connected(broker: SmallBroker) -> AsyncIterator["Peer"]:
    """A channel of its own, closed on leaving."""
    options = (*BIG, ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.insecure_channel(broker.address, options=options) as channel:
        yield Peer(channel)


class Peer:
    """Opens calls."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    def open(self, path: str, metadata: Mapping[str, str]) -> "PeerStream":
        method = self.channel.stream_stream(path)
        return PeerStream(method(metadata=tuple(metadata.items())))

    def produce(self, term: int = FIRST_TERM, **metadata: str) -> "PeerStream":
        header = create_header(CreateHeader(P0, term))
        return self.open(PRODUCE, {CREATE_PRODUCER: header, **metadata})

    def consume(self, term: int = FIRST_TERM, **metadata: str) -> "PeerStream":
        header = create_header(CreateHeader(P0, term))
        return self.open(CONSUME, {CREATE_CONSUMER: header, **metadata})

    async def call(
        self, path: str, request: bytes, metadata: Mapping[str, str] | None = None
    ) -> bytes:
        """One request, one answer; grpc.aio.AioRpcError otherwise."""
        method = self.channel.unary_unary(path)
        with anyio.fail_after(ANSWER_S):
            answer: bytes = await method(request, metadata=tuple((metadata or {}).items()))
        return answer


class PeerStream:
    """A bidirectional call; every wait has a deadline."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def send(self, *requests: bytes) -> None:
        for request in requests:
            with anyio.fail_after(ANSWER_S):
                await self.call.write(request)

    async def half_close(self) -> None:
        with anyio.fail_after(ANSWER_S):
            await self.call.done_writing()

    async def receive(self) -> bytes:
        """The next message; Ended with the status when there is none."""
        with anyio.fail_after(ANSWER_S):
            try:
                received = await self.call.read()
            except grpc.aio.AioRpcError as error:
                raise ended(error) from None
        if received is grpc.aio.EOF:
            raise Ended(*await self.status())
        assert isinstance(received, bytes)
        return received

    async def end(self) -> "Ended":
        """How the call ended, whatever still comes before it."""
        while True:
            try:
                await self.receive()
            except Ended as ended_so:
                return ended_so

    async def status(self) -> tuple[int, StreamingError | None]:
        """How the call ended: gRPC code and the streaming error inside, if any."""
        with anyio.fail_after(ANSWER_S):
            code = await self.call.code()
            if code is not LOST:
                assert not await self.call.details(), "the message of a status is empty"
            return code.value[0], details_of(await self.call.trailing_metadata())


class Ended(Exception):
    """The call is over."""

    def __init__(self, code: int, error: StreamingError | None) -> None:
        super().__init__(f"gRPC {code}, {error}")
        self.code, self.error = code, error


def ended(error: grpc.aio.AioRpcError) -> Ended:
    """What a failed call says."""
    # The deadline of this side may pass first, or the connection is lost: then grpc says so itself.
    if error.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED, LOST):
        assert not error.details(), "the message of a status is empty"
    return Ended(error.code().value[0], details_of(error.trailing_metadata()))


def details_of(trailers: Any) -> StreamingError | None:
    for key, value in trailers or ():
        if key == DETAILS:
            return read_status_details(value)
    return None


def insert(payload: bytes = b"row", **properties: str) -> bytes:
    """A message as Milvus's client makes it: Insert, version 1, empty header, on `V0`."""
    return message(payload, {"_t": "2", "_v": "1", "_h": "", "_vc": V0} | properties)


def append(request_id: int, payload: bytes = b"row", **properties: str) -> bytes:
    """A ProduceRequest that appends `insert(...)`."""
    return produce_request(request_id, insert(payload, **properties))
