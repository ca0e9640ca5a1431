# ruff: noqa: SLF001 - this package is the one that may know grpclib's inside (see its docstring)
"""Read and write the gRPC messages of one HTTP/2 stream in batches.

Outgoing bytes are cut into DATA frames that fit the flow-control windows.

Why memory is bounded: a peer can have at most the stream's receive window in `Arrivals` (bytes are
acknowledged only when taken), and one message of at most `limit_bytes` in the splitter; those of
all streams of a connection are bounded together (`held_bytes`). Outgoing bytes exist once, in the
caller's batch, until the peer opens its window.
"""

import asyncio
from collections.abc import Callable, Sequence

import grpclib.protocol
from h2.connection import ConnectionState

from broker.transport.data_frames import data_frames, processed, send_window
from broker.transport.held_bytes import UNFINISHED_BYTES_MAX, UnfinishedMessages
from schemas.encoding.frames import FrameSplitter, frames, sole_message

SLICE_BYTES_MAX = 256 * 1024
"""The largest single write to the socket; between two slices other streams get their turn."""

JOINED_BYTES_MAX = 4096
"""To copy less than this is cheaper than to pass it to the socket in parts."""


class StreamGone(Exception):
    """The peer reset the stream or the connection is lost: nothing can be sent or received."""


class Stalled(Exception):
    """The peer stopped inside a message, or kept its window shut, for too long."""


class CutShort(Stalled):
    """The peer half-closed inside a message: the rest will never arrive."""


class Crowded(Stalled):
    """Too much of messages that are not whole has arrived on the connection."""


class Arrivals:
    """Bytes that have arrived on a stream; replaces grpclib's `Buffer`.

    The peer's window is reopened for bytes that were taken, not for bytes that wait.
    """

    __slots__ = ("_chunks", "_loop", "_owed_bytes", "_stream", "_waiter", "ended", "lost", "taker")

    def __init__(self, stream: grpclib.protocol.Stream) -> None:
        self._stream = stream
        # Kept: until Python 3.12 each look-up of the running loop is a system call.
        self._loop = asyncio.get_running_loop()
        self._chunks: list[bytes] = []
        self._owed_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self.taker: Callable[[bytes], bool] | None = None
        """May take what arrives while the reader waits, instead of it; then returns True."""
        self.ended = False
        self.lost = ""
        # DATA of the read that brought the headers went to grpclib's buffer before the handler ran.
        self._adopt(stream.buffer)
        stream.buffer = self  # type: ignore[assignment]

    def _adopt(self, replaced: grpclib.protocol.Buffer) -> None:
        """Take over what grpclib's buffer has received."""
        assert not replaced._acked, "the stream was read before it was taken over"
        while not replaced._unacked.empty():
            data, _, owed_bytes = replaced._unacked.get_nowait()
            self.add(data, owed_bytes)
        self.ended = replaced._eof

    def add(self, data: bytes, ack_size: int) -> None:
        """Called by grpclib for each DATA frame."""
        waiter, taker = self._waiter, self.taker
        # While the reader waits nothing is before this: the order is kept.
        if taker is not None and waiter is not None and not waiter.done() and taker(data):
            self._give_back(ack_size)
            return
        self._chunks.append(data)
        self._owed_bytes += ack_size
        self._wake()

    def eof(self) -> None:
        """Called by grpclib when the peer half-closed."""
        self.ended = True
        self._wake()

    def unacked_size(self) -> int:
        """Called by grpclib when the stream is released: what to give back to the connection."""
        owed_bytes, self._owed_bytes = self._owed_bytes, 0
        self._chunks.clear()
        return owed_bytes

    def lose(self, reason: str) -> None:
        """Note that nothing more will arrive; what has arrived can still be taken."""
        self.lost = reason or "connection lost"
        self._wake()

    def take(self) -> list[bytes]:
        """All that has arrived, in pieces, without waiting; empty when nothing has."""
        chunks = self._chunks
        if chunks:
            self._chunks = []
            owed_bytes, self._owed_bytes = self._owed_bytes, 0
            self._give_back(owed_bytes)
        return chunks

    def _give_back(self, size: int) -> None:
        """Reopen the peer's window, when enough has been taken."""
        stream = self._stream
        assert stream.id is not None
        if processed(stream._h2_connection, stream.id, size):
            return
        connection_ended = stream._h2_connection.state_machine.state is ConnectionState.CLOSED
        # A stream that has closed has no window any more, but the connection's must be given back.
        if not connection_ended and not stream._transport.is_closing():
            stream.connection.ack(stream.id, size)

    async def wait(self) -> None:
        """Wait until there is something to take, the peer half-closed, or the stream is lost."""
        if self._chunks or self.ended or self.lost:
            return
        assert self._waiter is None, "two readers on one stream"
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class BatchStream:
    """One stream; at most one task reads it and at most one writes it at a time.

    `limit_bytes` bounds one incoming message; a longer one raises `FrameTooLarge` at its 5 header
    bytes, or is returned as an `Oversize` after `pass_over`. `stall_s` bounds the wait for the rest
    of a partly arrived message.
    """

    def __init__(
        self, stream: grpclib.protocol.Stream, *, limit_bytes: int, stall_s: float
    ) -> None:
        assert stream.id is not None, "the stream has no number before its headers are sent"
        self._stream = stream
        self._id = stream.id
        self._h2 = stream._h2_connection
        self._arrivals = Arrivals(stream)
        self._limit_bytes = limit_bytes
        self._splitter = FrameSplitter(limit_bytes)
        self._stall_s = stall_s
        self._unsent = b""
        # Of a server's connection; the answers of a server are not counted.
        self._unfinished: UnfinishedMessages | None = getattr(stream.connection, "unfinished", None)
        self._begun = (0, 0)
        self._tell_grpclib = stream.__terminated__
        # grpclib only cancels a handler's task; a task that waits on this object must wake as well.
        stream.__terminated__ = self._lose  # type: ignore[method-assign]

    def pass_over(self, bytes_max: int) -> None:
        """Drop messages over the limit, up to `bytes_max`, as they arrive. Call before any read."""
        self._splitter = FrameSplitter(self._limit_bytes, passed_over_bytes_max=bytes_max)

    def take_at_once(self, taker: Callable[[bytes], bool]) -> None:
        """Offer each lone message to `taker` when it arrives while a task waits in `read_batch`.

        It returns True if it has taken the message; else `read_batch` returns it. That saves a turn
        of the event loop for small messages that somebody waits for. It is called by the connection
        and must raise nothing.
        """

        def take(data: bytes) -> bool:
            if self._splitter.pending:
                return False
            message = sole_message(data)
            return message is not None and len(message) <= self._limit_bytes and taker(message)

        self._arrivals.taker = take

    async def read_batch(self) -> list[bytes]:
        """Every message that has arrived, at least one; [] once the peer has half-closed.

        Raises FrameTooLarge, Stalled (part of a message and then nothing for `stall_s`; CutShort
        for a half-close inside one) and, once all that arrived was returned, StreamGone.
        """
        while True:
            chunks = self._arrivals.take()
            # What has arrived is returned before the end or the loss is reported.
            if chunks:
                if messages := self._split(chunks):
                    return messages
            elif self._arrivals.ended:
                if self._splitter.pending:
                    raise CutShort(f"stream ended {self._splitter.pending} bytes into a message")
                return []
            elif self._arrivals.lost:
                raise StreamGone(self._arrivals.lost)
            # Only silence inside a message has a deadline: idle streams are healthy.
            elif self._splitter.pending:
                await self._wait_for_the_rest()
            else:
                await self._arrivals.wait()

    def read_arrived(self) -> list[bytes]:
        """Every message that has arrived; [] also when there is none. Raises FrameTooLarge."""
        chunks = self._arrivals.take()
        return self._split(chunks) if chunks else []

    def _split(self, chunks: Sequence[bytes]) -> list[bytes]:
        messages = self._splitter.feed(chunks[0])
        for chunk in chunks[1:]:
            messages += self._splitter.feed(chunk)
        if self._unfinished is not None and self._begun[0] != self._splitter.announced:
            self._count(self._unfinished, self._splitter.announced)
        return messages

    def _count(self, unfinished: UnfinishedMessages, length: int) -> None:
        self.forget()
        counted = unfinished.begin(length)
        if counted is None:
            raise Crowded(
                f"a message of {length} bytes has begun while others of {UNFINISHED_BYTES_MAX} on"
                " this connection are not whole; send fewer at a time"
            )
        self._begun = length, counted

    def forget(self) -> None:
        """Count the unfinished message no longer, because the call ends."""
        if self._unfinished is not None and self._begun[1]:
            self._unfinished.end(self._begun[1])
        self._begun = (0, 0)

    async def _wait_for_the_rest(self) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await self._arrivals.wait()
        except TimeoutError:
            half = self._splitter.pending
            raise Stalled(
                f"{half} bytes of a message arrived, then nothing for {self._stall_s} s"
            ) from None

    async def write_batch(
        self, messages: Sequence[bytes], *, deadline_s: float | None = None
    ) -> None:
        """Send the messages in order, in as few DATA frames and socket writes as possible.

        Returns when the socket has them all. Raises Stalled when the peer's windows stayed shut
        past `deadline_s` (the stream is then cut inside a message: end it), and StreamGone.
        """
        await self.write_framed(frames(messages), deadline_s=deadline_s)

    async def write_framed(self, framed: bytes, *, deadline_s: float | None = None) -> None:
        """`write_batch` for bytes that have their gRPC framing, which streams may share.

        The rest of a cancelled write is sent by the next one, before its own bytes.
        """
        rest = memoryview(self._unsent + framed if self._unsent else framed)
        self._unsent = b""
        # The common case: one write, without a timeout's timer.
        if len(rest) <= min(self._window(), SLICE_BYTES_MAX):
            self._send(rest)
            return
        try:
            async with asyncio.timeout(deadline_s):
                while rest:
                    room = min(await self.room(), SLICE_BYTES_MAX)
                    self._send(rest[:room])
                    rest = rest[room:]
        except TimeoutError:
            raise Stalled(f"the peer left {len(rest)} bytes unread for {deadline_s} s") from None
        finally:
            # The peer may have half of a message: its rest must be the next bytes it gets.
            # Copied, because `rest` views the whole batch.
            self._unsent = bytes(rest)

    def write_at_once(self, framed: bytes) -> bool:
        """`write_framed` if it need not wait; else, and if the stream is gone, send nothing: False.

        Do not call it during another write.
        """
        if self._unsent or len(framed) > min(self.room_now(), SLICE_BYTES_MAX):
            return False
        try:
            self._send(memoryview(framed))
        except StreamGone:
            return False
        return True

    async def flush(self, *, deadline_s: float) -> None:
        """Send the rest of a cancelled write. Raises as `write_batch` does."""
        if self._unsent:
            await self.write_framed(b"", deadline_s=deadline_s)

    async def room(self) -> int:
        """Wait until peer and socket accept bytes; returns how many. Raises StreamGone."""
        connection = self._stream.connection
        while True:
            window = self._window()
            if window > 0:
                return window
            if not connection.write_ready.is_set():
                await connection.write_ready.wait()
            else:
                # No await since the window was read, so no update is lost in between.
                self._stream.window_updated.clear()
                await self._stream.window_updated.wait()

    def room_now(self) -> int:
        """How many bytes peer and socket accept now; 0 also when the stream is gone."""
        try:
            return max(0, self._window())
        except StreamGone:
            return 0

    def _window(self) -> int:
        """Bytes that can be sent now; 0 or less when the socket or the peer is full."""
        stream = self._stream
        window = send_window(self._h2, self._id)
        if window is None or self._arrivals.lost or stream._transport.is_closing():
            raise StreamGone(self._arrivals.lost or "the stream is closed")
        return window if stream.connection.write_ready.is_set() else 0

    def _send(self, data: memoryview) -> None:
        """Put `data`, which the windows let through, on the socket in one write."""
        parts = data_frames(self._h2, self._id, data)
        if parts is None:
            raise StreamGone("the stream is closed")
        connection = self._stream.connection
        connection.data_send_process()
        connection.flush()  # what h2 has queued goes first
        # Copying a little is cheaper than a system call for each part.
        if len(data) < JOINED_BYTES_MAX:
            self._stream._transport.write(b"".join(parts))
        else:
            self._stream._transport.writelines(parts)

    def _lose(self, reason: str) -> None:
        """Called by grpclib when the stream was reset or the connection lost: wake all waiters."""
        self._arrivals.lose(reason)
        self._stream.window_updated.set()
        # A closing transport never resumes writing. After a reset of this stream alone it will, and
        # the event is the whole connection's.
        if self._stream._transport.is_closing():
            self._stream.connection.write_ready.set()
        self._tell_grpclib(reason)
