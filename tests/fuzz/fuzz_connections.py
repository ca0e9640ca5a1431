"""A connection of HTTP/2 that gets anything, in any pieces, behind a good preface or none."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from grpclib.protocol import AbstractHandler, Stream

from broker.transport.listener import Listener, ListenerLimits, PeerConnection
from tests.wire.raw_peer import HELLO, http_frame

LIMITS = ListenerLimits(unsent_bytes_max=256 * 1024, streams_max=64)
HELD_BYTES_MAX = 512 * 1024


def check(data: bytes) -> None:
    """Whatever comes, at worst this connection is closed; and what is kept of it is bounded."""
    if not data:
        return
    step = (len(data), 1 + data[0] % 64)[data[0] & 1]
    _LOOP.run_until_complete(_received(data[1:], step, good=bool(data[0] & 2)))


async def _received(data: bytes, step: int, *, good: bool) -> None:
    listener = Opened([], LIMITS)
    connection = cast(PeerConnection, listener._protocol_factory())
    wire = Wire()
    connection.connection_made(cast(asyncio.Transport, wire))
    if good:
        connection.data_received(HELLO)
    for at in range(0, len(data), step):
        connection.data_received(data[at : at + step])
        held = len(connection._frames._kept) + len(
            connection.connection._connection.incoming_buffer._data
        )
        assert held <= HELD_BYTES_MAX, f"{held} bytes are kept of what came"
        assert len(connection.processor.streams) <= LIMITS.streams_max
    wire.close()
    connection.connection_lost(None)


class Wire:
    """A transport that takes all that is written and keeps none of it."""

    def __init__(self) -> None:
        self._closing = False

    def write(self, data: bytes) -> None: ...

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    abort = close


class Calls(AbstractHandler):
    """Takes every call and reads nothing."""

    closing = False

    def accept(self, stream: Stream, headers: Any, release_stream: Callable[[], None]) -> None: ...

    def cancel(self, stream: Stream) -> None: ...

    def close(self) -> None: ...


class Opened(Listener):
    """A listener without a port."""

    def new_handler(self) -> AbstractHandler:
        return Calls()


_LOOP = asyncio.new_event_loop()

_REQUEST = b"\x83\x86\x44\x02/a\x41\x01b\x40\x02te\x08trailers\x5f\x10application/grpc"
SEEDS = (
    b"\x02" + http_frame(4, b"\x00\x03\x00\x00\x00\x64") + http_frame(6, b"8 bytes."),
    b"\x02" + http_frame(1, _REQUEST, 4, 1) + http_frame(0, b"\x00\x00\x00\x00\x01a", 1, 1),
    b"\x03" + http_frame(1, _REQUEST, 4, 1) + http_frame(3, b"\x00\x00\x00\x08", 0, 1),
    b"\x02" + http_frame(1, _REQUEST[:9], 0, 1) + http_frame(9, _REQUEST[9:], 4, 1),
    b"\x02" + http_frame(8, b"\x00\x00\x10\x00", 0, 0) + http_frame(7, bytes(8), 0, 0),
    b"\x02" + http_frame(1, b"\x3f\xe1\x7f" + _REQUEST, 4, 1) + http_frame(2, bytes(5), 0, 1),
    b"\x00" + HELLO + http_frame(0xBE, b"what"),
)
