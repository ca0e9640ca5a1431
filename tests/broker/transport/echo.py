"""A server that answers as it is told, and a channel to it, for the tests of the transport."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import grpclib.client
import grpclib.server
from grpclib.const import Cardinality, Handler

from broker.transport import (
    ClientBatchStream,
    Listener,
    ListenerLimits,
    MessageCodec,
    ServerBatchStream,
    open_call,
)

HOST = "127.0.0.1"
CALL = "/echo/Call"
LIMIT_BYTES = 1 << 20
Serve = Callable[[ServerBatchStream], Awaitable[None]]


class Echo:
    """One method, served by a plain function."""

    def __init__(self, serve: Serve, stall_s: float) -> None:
        self._serve, self._stall_s = serve, stall_s

    async def _handle(self, call: "grpclib.server.Stream[bytes, bytes]") -> None:
        await self._serve(ServerBatchStream(call, limit_bytes=LIMIT_BYTES, stall_s=self._stall_s))

    def __mapping__(self) -> Mapping[str, Handler]:
        return {CALL: Handler(self._handle, Cardinality.STREAM_STREAM, bytes, bytes)}


async def echo(stream: ServerBatchStream) -> None:
    """Every message back, until the client half-closes."""
    while messages := await stream.read_batch():
        await stream.write_batch(messages)


@asynccontextmanager
async def serving(
    serve: Serve = echo, *, limits: ListenerLimits | None = None, stall_s: float = 5.0
) -> AsyncIterator[tuple[Listener, grpclib.client.Channel]]:
    listener = Listener((Echo(serve, stall_s),), limits or ListenerLimits())
    await listener.listen(HOST, 0)
    channel = grpclib.client.Channel(HOST, listener.port, codec=MessageCodec())
    try:
        yield listener, channel
    finally:
        channel.close()
        await listener.hang_up()


def call(
    channel: grpclib.client.Channel, stall_s: float = 5.0
) -> AbstractAsyncContextManager[ClientBatchStream]:
    return open_call(channel, CALL, {}, limit_bytes=LIMIT_BYTES, stall_s=stall_s)
