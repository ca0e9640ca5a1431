"""One request and its answer as a gRPC call, with a deadline."""

import asyncio
from collections.abc import Mapping
from typing import TypeVar

import grpclib.client
from grpclib.const import Cardinality

from broker.transport.cancellation import separate_wakeups
from broker.transport.codec import WireMessage

W = TypeVar("W", bound=WireMessage)


async def unary_call(
    channel: grpclib.client.Channel,
    path: str,
    request: WireMessage,
    response_type: type[W],
    *,
    metadata: Mapping[str, str],
    deadline_s: float,
) -> W | None:
    """The answer; None when the call ended without one. Raises TimeoutError, and as grpclib."""
    async with (
        asyncio.timeout(deadline_s),
        channel.request(
            path, Cardinality.UNARY_UNARY, type(request), response_type, metadata=metadata
        ) as call,
    ):
        separate_wakeups(call)
        await call.send_message(request, end=True)
        return await call.recv_message()
