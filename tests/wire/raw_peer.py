"""A peer that speaks HTTP/2 by hand, and can therefore speak it badly."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from struct import pack
from typing import Protocol

import anyio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, ResponseReceived, StreamReset, TrailersReceived

from tests.wire.small_broker import HOST

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ANSWER_S = 60.0
DATA, HEADERS, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 4, 6, 7, 9


def http_frame(kind: int, payload: bytes, flags: int = 0, stream: int = 0) -> bytes:
    """One HTTP/2 frame, valid or not."""
    return pack(">I", len(payload))[1:] + bytes((kind, flags)) + pack(">I", stream) + payload


HELLO = PREFACE + http_frame(SETTINGS, b"")


class Listening(Protocol):
    """A broker on loopback, in this process or in another."""

    @property
    def port(self) -> int: ...


class RawPeer:
    """A socket, and the bytes that have come from it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Bytes as they are; a server that hung up is not an error here."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError:
            pass

    async def until_closed(self) -> bytes:
        """Everything up to the server's hanging up."""
        received = b""
        with anyio.fail_after(ANSWER_S):
            while True:
                try:
                    data = await self.reader.read(65536)
                except ConnectionError:
                    return received
                if not data:
                    return received
                received += data

    async def frames(self) -> AsyncIterator[tuple[int, int, bytes]]:
        """Kind, flags and payload of each frame that comes."""
        while True:
            with anyio.fail_after(ANSWER_S):
                head = await self.reader.readexactly(9)
                payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
            yield head[3], head[4], payload


@asynccontextmanager
async def deaf(broker: Listening) -> AsyncIterator[RawPeer]:
    """A connection that reads nothing and has next to no room for what it does not read."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.setblocking(False)
    await asyncio.get_running_loop().sock_connect(listener, (HOST, broker.port))
    reader, writer = await asyncio.open_connection(sock=listener)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    try:
        yield RawPeer(reader, writer)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def raw(broker: Listening) -> AsyncIterator[RawPeer]:
    """A plain connection, to which nothing has been sent."""
    reader, writer = await asyncio.open_connection(HOST, broker.port)
    try:
        yield RawPeer(reader, writer)
    finally:
        writer.transport.abort()


class RawCall:
    """One call whose DATA is written by hand."""

    def __init__(self, peer: RawPeer, path: str, metadata: Iterable[tuple[str, str]]) -> None:
        self.peer = peer
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        head = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "broker"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        )
        self.h2.send_headers(1, [*head, *metadata])
        self.answered = b""
        self.trailers: dict[str, str] = {}
        self.was_reset = False

    async def open(self) -> None:
        await self.peer.send(self.h2.data_to_send())

    async def send(self, data: bytes, *, end: bool = False) -> None:
        """As many DATA frames as it takes and the windows allow."""
        for start in range(0, len(data), 16384) or [0]:
            chunk = data[start : start + 16384]
            self.h2.send_data(1, chunk, end_stream=end and start + 16384 >= len(data))
        await self.peer.send(self.h2.data_to_send())

    async def until_ended(self) -> dict[str, str]:
        """The trailers; empty when the stream or the connection ended without any."""
        with anyio.fail_after(ANSWER_S):
            while not self.trailers and not self.was_reset:
                data = await self.peer.reader.read(65536)
                if not data:
                    break
                for event in self.h2.receive_data(data):
                    self._note(event)
        return self.trailers

    def _note(self, event: Event) -> None:
        match event:
            case DataReceived():
                self.answered += event.data or b""
            case TrailersReceived() | ResponseReceived():
                assert event.headers is not None
                headers = {_text(key): _text(value) for key, value in event.headers}
                self.trailers = headers if "grpc-status" in headers else {}
            case StreamReset():
                self.was_reset = True
            case _:
                pass


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
