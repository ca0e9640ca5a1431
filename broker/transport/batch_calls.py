# ruff: noqa: SLF001 - this package is the one that may know grpclib's inside (see its docstring)
"""Both ends of a batched stream: response headers, statuses, opening and release."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpclib.client
import grpclib.server
from grpclib.const import Cardinality
from grpclib.exceptions import GRPCError
from grpclib.metadata import (
    decode_bin_value,
    decode_grpc_message,
    encode_bin_value,
    encode_grpc_message,
)
from h2.exceptions import ProtocolError, StreamClosedError

from broker.transport.cancellation import separate_wakeups
from broker.transport.frame_costs import REFUSED_CALL
from broker.transport.streams import BatchStream, StreamGone

DETAILS_TRAILER = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class CallStatus:
    """How a call ended: gRPC code, its message, and the undecoded `google.rpc.Status` (or b"")."""

    code: int
    message: str
    details: bytes


class ServerBatchStream(BatchStream):
    """The server's end. grpclib cancels the handler's task when the peer disconnects."""

    def __init__(
        self, call: "grpclib.server.Stream[bytes, bytes]", *, limit_bytes: int, stall_s: float
    ) -> None:
        super().__init__(call._stream, limit_bytes=limit_bytes, stall_s=stall_s)
        self._call = call

    @property
    def method(self) -> str:
        """The path that was called, such as `/tidemark.v1.Log/Append`."""
        return self._call._method_name

    def pay_for_refusal(self) -> None:
        """Count what the refused call has cost: its connection is read the more slowly."""
        pay_for_refusal(self._call)

    async def write_framed(self, framed: bytes, *, deadline_s: float | None = None) -> None:
        """Write; the first write sends the response headers before it."""
        if not self._call._send_initial_metadata_done:
            await self._call.send_initial_metadata()
        await super().write_framed(framed, deadline_s=deadline_s)

    async def refuse(self, error: GRPCError, trailers: Mapping[str, str]) -> None:
        """End a call that was not answered yet with this error, and trailers beside its status.

        Does what grpclib does, which sends no trailer of gRPC's own names for anybody. Nothing once
        the call has an answer: these trailers are for libraries that retry, which then do not.
        """
        call, stream = self._call, self._stream
        if call._send_initial_metadata_done or stream._transport.is_closing():
            return
        headers = [
            (":status", "200"),
            ("content-type", call._content_type),
            ("grpc-status", str(error.status.value)),
            ("grpc-message", encode_grpc_message(error.message or "")),
            (DETAILS_TRAILER, encode_bin_value(error.details).decode("ascii")),
            *trailers.items(),
        ]
        try:
            await stream.send_headers(headers, end_stream=True)
        except StreamClosedError:
            return  # the peer has ended the call itself
        call._send_trailing_metadata_done = True
        if stream.closable:
            stream.reset_nowait()


def pay_for_refusal(call: "grpclib.server.Stream[bytes, bytes]") -> None:
    """See ServerBatchStream; for a call that was not read."""
    # Of another kind in tests that have no Listener.
    pay = getattr(call._stream.connection, "pay", None)
    if pay is not None:
        pay(REFUSED_CALL)


class ClientBatchStream(BatchStream):
    """The client's end, made by `open_call`. After `read_batch` returned [], see `status()`."""

    async def end(self) -> None:
        """Half-close: tell the server that nothing more will be sent. Raises StreamGone."""
        try:
            await self._stream.end()
        except ProtocolError as gone:
            raise StreamGone(str(gone)) from gone

    def status(self) -> CallStatus:
        """How the server ended the call. Raises StreamGone when it ended without a status."""
        # A call refused at once has its status in the only headers: gRPC's trailers-only form.
        headers = dict(self._stream.trailers or self._stream.headers or ())
        if "grpc-status" not in headers:
            http_status = headers.get(":status", "none")
            raise StreamGone(self._arrivals.lost or f"no gRPC status; HTTP status {http_status}")
        return CallStatus(
            code=int(headers["grpc-status"]),
            message=decode_grpc_message(headers.get("grpc-message", "")),
            details=decode_bin_value(headers.get(DETAILS_TRAILER, "").encode("ascii")),
        )


@asynccontextmanager
async def open_call(
    channel: grpclib.client.Channel,
    path: str,
    metadata: Mapping[str, str],
    *,
    limit_bytes: int,
    stall_s: float,
) -> AsyncIterator[ClientBatchStream]:
    """Open a bidirectional call and yield its stream; only the headers are sent yet.

    Connects the channel if necessary (use a deadline; OSError when it cannot connect). On exit, a
    call that has not ended is reset, so that the server drops it at once.
    """
    call = channel.request(path, Cardinality.STREAM_STREAM, bytes, bytes, metadata=dict(metadata))
    # Entered by hand: the exit would wait for trailers and raise for the status.
    await call.__aenter__()
    separate_wakeups(call)
    await call.send_request()
    stream = call._stream
    try:
        yield ClientBatchStream(stream, limit_bytes=limit_bytes, stall_s=stall_s)
    finally:
        # Otherwise the stream has ended on both sides, or its connection has: h2 refuses a reset.
        if stream.closable:
            stream.reset_nowait()
        call._release_stream()
