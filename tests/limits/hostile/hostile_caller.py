"""A caller that breaks gRPC's rules above HTTP/2: any metadata and bodies, as fast as they go."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import anyio
import anyio.lowlevel
from grpclib.const import Status
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error, StreamClosedError

from schemas.encoding.frames import FrameSplitter
from tests.limits.hostile.attack import Got, Target
from tests.wire.raw_peer import RawPeer, raw

IN_FLIGHT = 16
"""Calls of one caller at a time."""
PASS_BYTES = 256 * 1024
"""Sent of one call before answers are looked at."""
ANSWER_BYTES_MAX = 16 << 20
PAUSE_S = 0.01
Headers = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class HostileCall:
    """One call. `bodies`: bytes with their framing, perhaps without end.

    `read`: what a message says that is an answer inside of a stream; it counts as "OK" without.
    """

    path: str
    bodies: Iterator[bytes]
    metadata: Headers = ()
    read: Callable[[bytes], str] | None = None


@dataclass(slots=True)
class _Open:
    call: HostileCall
    splitter: FrameSplitter
    rest: bytes = b""
    sent: bool = False


async def call_on(
    target: Target, got: Got, calls: Iterator[HostileCall], at_once: int = IN_FLIGHT
) -> None:
    """Make these calls over one connection, which is opened again whenever it is closed."""
    while True:
        try:
            async with raw(target) as peer:
                await _Caller(peer, got, calls, at_once).run()
        except* (OSError, H2Error):
            pass
        got["closed"] += 1
        await anyio.sleep(PAUSE_S)


class _Caller:
    """One connection."""

    def __init__(self, peer: RawPeer, got: Got, calls: Iterator[HostileCall], at_once: int) -> None:
        self._peer, self._got, self._calls = peer, got, calls
        self._at_once = at_once
        config = H2Configuration(
            client_side=True,
            header_encoding="utf-8",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self._h2 = H2Connection(config)
        self._open: dict[int, _Open] = {}
        self._changed = anyio.Event()
        self._over = False

    async def run(self) -> None:
        """Until the server closes the connection."""
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window((1 << 31) - 1 - 65_535)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._receive)
            while not self._over:
                self._changed = anyio.Event()
                more = self._send()
                await self._peer.send(self._h2.data_to_send())
                # Without a pause the answers would never be looked at.
                await (anyio.lowlevel.checkpoint() if more else self._changed.wait())
            tasks.cancel_scope.cancel()

    def _send(self) -> bool:
        """Begin calls, and send what the windows allow; whether there is more to send now."""
        while len(self._open) < self._at_once:
            call, stream = next(self._calls), self._h2.get_next_available_stream_id()
            self._h2.send_headers(stream, _headers(call))
            self._open[stream] = _Open(call, FrameSplitter(ANSWER_BYTES_MAX))
        more = [self._send_of(stream, it) for stream, it in self._open.items() if not it.sent]
        return any(more)

    def _send_of(self, stream: int, it: _Open) -> bool:
        left = PASS_BYTES
        while left > 0:
            if not it.rest:
                body = next(it.call.bodies, None)
                if body is None:
                    self._h2.end_stream(stream)
                    it.sent = True
                    return False
                it.rest = body
            size = min(self._h2.local_flow_control_window(stream), 16_384, len(it.rest))
            if size <= 0:
                return False
            self._h2.send_data(stream, it.rest[:size])
            it.rest = it.rest[size:]
            left -= size
        return True

    async def _receive(self) -> None:
        while data := await self._peer.reader.read(1 << 18):
            for event in self._h2.receive_data(data):
                self._note(event)
            self._changed.set()
        self._over = True
        self._changed.set()

    def _note(self, event: Event) -> None:
        match event:
            case ResponseReceived() | TrailersReceived():
                headers = {str(name): str(text) for name, text in event.headers}
                if "grpc-status" in headers:
                    self._got[Status(int(headers["grpc-status"])).name] += 1
            case DataReceived():
                self._read(event)
            case StreamEnded(stream_id=int(stream)):
                self._ended(stream)
            case StreamReset(stream_id=int(stream)):
                if stream in self._open:
                    self._got["RST_STREAM"] += 1
                self._open.pop(stream, None)
            case ConnectionTerminated():
                self._got["GOAWAY"] += 1
                self._over = True
            case _:
                pass

    def _read(self, event: DataReceived) -> None:
        assert event.stream_id is not None
        assert event.data is not None
        self._h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
        it = self._open.get(event.stream_id)
        if it is not None and it.call.read is not None:
            self._got.update(filter(None, map(it.call.read, it.splitter.feed(event.data))))

    def _ended(self, stream: int) -> None:
        it = self._open.pop(stream, None)
        if it is not None and not it.sent:
            # It got its answer before it had sent everything, and perhaps a reset behind it.
            with suppress(StreamClosedError):
                self._h2.reset_stream(stream)


def _headers(call: HostileCall) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", call.path),
        (":authority", "broker"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *call.metadata,
    ]
