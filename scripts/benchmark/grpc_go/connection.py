"""A connection that reads and writes as grpc-go does.

What is imitated of grpc-go 1.71, with its default options (`http2_client.go`, `controlbuf.go`):

* The preface and the empty SETTINGS are a write each; the first call follows the server's SETTINGS.
* Header fields in its order, encoded with one dynamic table for all calls.
* Each message is a DATA frame of its own, its prefix of five bytes and its body together.
* `loopyWriter`: one queue for control frames, and the messages of a stream, of which at most 64 KiB
  wait. Frames are copied into a buffer of 32 KiB, which is written when it is full, in the midst
  of a frame if need be, and flushed when nothing is left to write.
* Reads of 32 KiB. Windows of 65,535 bytes, reopened after a quarter: that of the connection when
  data arrives, that of a stream when the program has read it. A WINDOW_UPDATE and a ping with each
  first DATA frame after the answer to the last ping; windows grow with the estimate of bandwidth
  times delay.

Not imitated: that program, writer and reader are goroutines on several cores, so that the writer
flushes more often. Beside a real grpc-go 1.71.0 client on the same broker: under strace the same
SETTINGS, header blocks, DATA frames, pings and kinds of window update, and two thirds of the writes
of 32 KiB; without it, 20,000 messages of 1 KiB took 1,230 to 1,350 writes and 360 reads there, 710
and 110 here; reading them 240 to 320 writes and 1,200 reads there, 210 and 720 here.
"""

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from struct import unpack

from benchmark.grpc_go.header_fields import HeaderEncoder
from benchmark.grpc_go.messages import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    PREFACE,
    RESET,
    SETTINGS,
    WINDOW_UPDATE,
    header_block,
    http_frame,
    initial_window,
    window_update,
)
from benchmark.grpc_go.streams import Stream
from benchmark.grpc_go.windows import BDP_PING, WINDOW_BYTES, Bandwidth, ConnectionWindow

BDP_PING_FRAME = http_frame(PING, BDP_PING)
BUFFER_BYTES = 32 * 1024
HEAD_BYTES = 9
OPEN_S_MAX = 10.0


class CallFailed(Exception):
    """The server ended a call, or the connection."""


class Connection:
    """One connection; `open` makes it, `close` ends it."""

    def __init__(self, wire: socket.socket, authority: str) -> None:
        self._wire = wire
        self._authority = authority
        self._loop = asyncio.get_running_loop()
        self._encoder = HeaderEncoder()
        self._streams: dict[int, Stream] = {}
        self._next_id = 1
        self._read = bytearray()
        self._control: deque[bytes] = deque()
        self._buffer = bytearray()
        self._scheduled = self._blocked = False
        self._window = ConnectionWindow()
        self._bandwidth = Bandwidth()
        self._stream_window = WINDOW_BYTES
        self._send_window = self._peer_window = WINDOW_BYTES
        self._ready = asyncio.Event()
        self.error: Exception | None = None
        self.writes = 0

    @classmethod
    async def open(cls, address: str) -> "Connection":
        """Connect, and wait for the server's SETTINGS. Raises OSError or TimeoutError."""
        host, _, port = address.rpartition(":")
        wire = socket.socket()
        wire.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(OPEN_S_MAX):
            await loop.sock_connect(wire, (host, int(port)))
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made = cls(wire, address)
            await loop.sock_sendall(wire, PREFACE)
            await loop.sock_sendall(wire, http_frame(SETTINGS, b""))
            loop.add_reader(wire.fileno(), made._readable)
            await made._ready.wait()
        return made

    def close(self) -> None:
        """End the connection at once."""
        self.error = self.error or CallFailed("this side closed the connection")
        self._loop.remove_reader(self._wire.fileno())
        self._loop.remove_writer(self._wire.fileno())
        self._wire.close()

    def call(
        self, path: str, metadata: Iterable[tuple[str, str]], received: Callable[[bytes], None]
    ) -> Stream:
        """Open a stream; `received` gets each message of the server."""
        windows = self._stream_window, self._peer_window
        stream = Stream(self._next_id, received, self._write_soon, windows)
        self._next_id += 2
        self._streams[stream.id] = stream
        block = header_block(self._encoder, path, self._authority, metadata)
        self._put(http_frame(HEADERS, block, END_HEADERS, stream.id))
        return stream

    def _put(self, frame: bytes) -> None:
        self._control.append(frame)
        self._write_soon()

    def _write_soon(self) -> None:
        if not self._scheduled and not self._blocked:
            self._scheduled = True
            # As the writer's goroutine: it runs after the one that has put something.
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        """Write until nothing is left, control frames first; flush at the end."""
        self._scheduled = False
        while not self._blocked and self.error is None:
            frame = self._control.popleft() if self._control else self._next_data()
            if frame is None:
                self._flush(len(self._buffer))
                return
            if frame == BDP_PING_FRAME:
                self._bandwidth.sent(time.perf_counter())
            self._buffer += frame
            if len(self._buffer) >= BUFFER_BYTES:
                self._flush(BUFFER_BYTES)

    def _next_data(self) -> bytes | None:
        for stream in self._streams.values():
            frame = stream.next_frame(self._send_window)
            if frame is not None:
                self._send_window -= len(frame) - HEAD_BYTES
                return frame
        return None

    def _flush(self, size: int) -> None:
        """Write so much of the buffer; what a full socket does not take is written later."""
        while size:
            try:
                sent = self._wire.send(memoryview(self._buffer)[:size])
            except BlockingIOError:
                self._blocked = True
                self._loop.add_writer(self._wire.fileno(), self._writable)
                return
            except OSError as error:
                self._fail(CallFailed(f"the connection broke: {error}"))
                return
            self.writes += 1
            del self._buffer[:sent]
            size -= sent

    def _writable(self) -> None:
        self._loop.remove_writer(self._wire.fileno())
        self._blocked = False
        self._write_soon()

    def _readable(self) -> None:
        try:
            data = self._wire.recv(BUFFER_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(CallFailed(f"the connection broke: {error}"))
            return
        if not data:
            self._fail(CallFailed("the server closed the connection"))
            return
        self._read += data
        at, end = 0, len(self._read)
        while end - at >= HEAD_BYTES:
            length = int.from_bytes(self._read[at : at + 3], "big")
            if end - at < HEAD_BYTES + length:
                break
            kind, flags = self._read[at + 3], self._read[at + 4]
            (number,) = unpack(">I", self._read[at + 5 : at + HEAD_BYTES])
            payload = bytes(self._read[at + HEAD_BYTES : at + HEAD_BYTES + length])
            self._frame(kind, flags, number, payload)
            at += HEAD_BYTES + length
        del self._read[:at]

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == DATA:
            self._data(number, payload)
        elif kind == WINDOW_UPDATE:
            self._opened(number, int.from_bytes(payload, "big"))
        elif kind == PING:
            self._ping(flags, payload)
        elif kind == SETTINGS and not flags & ACK:
            self._settings(payload)
        elif kind == RESET:
            self._fail(CallFailed(f"the server reset stream {number}: {payload.hex()}"))
        elif kind == GOAWAY:
            self._fail(CallFailed(f"the server sends the client away: {payload[8:]!r}"))
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            self._fail(CallFailed(f"the server ended stream {number}: {payload!r}"))

    def _data(self, number: int, payload: bytes) -> None:
        pings = self._bandwidth.add(len(payload))
        if increment := self._window.on_data(len(payload)):
            self._put(window_update(0, increment))
        if pings:
            if increment := self._window.reset():
                self._put(window_update(0, increment))
            self._put(BDP_PING_FRAME)
        for increment in self._streams[number].arrived(payload):
            self._put(window_update(number, increment))

    def _opened(self, number: int, increment: int) -> None:
        if number == 0:
            self._send_window += increment
        elif number in self._streams:
            self._streams[number].send_window += increment
        self._write_soon()

    def _ping(self, flags: int, payload: bytes) -> None:
        if not flags & ACK:
            self._put(http_frame(PING, payload, ACK))
        elif payload == BDP_PING and (size := self._bandwidth.answered(time.perf_counter())):
            self._stream_window = size
            for stream in self._streams.values():
                stream.window.limit = size
            self._put(window_update(0, self._window.grow(size)))
            self._put(initial_window(size))

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            name, value = unpack(">HI", payload[at : at + 6])
            if name == INITIAL_WINDOW_SIZE:
                for stream in self._streams.values():
                    stream.send_window += value - self._peer_window
                self._peer_window = value
        self._put(http_frame(SETTINGS, b"", ACK))
        self._ready.set()

    def _fail(self, error: Exception) -> None:
        self.error = self.error or error
        self._loop.remove_reader(self._wire.fileno())
        for stream in self._streams.values():
            stream.failed(self.error)
