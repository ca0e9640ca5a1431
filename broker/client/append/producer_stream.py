"""One stream of appends, from its handshake to its end: sends what the outbox has, reports answers.

There are two kinds, which differ in their encoding alone: `ProduceCodec` for single messages over
Milvus's Produce, `AppendCodec` for numbered batches over `tidemark.v1.Log/Append`. A stream never
fails an append: what has no answer when the stream ends stays in the outbox.

Next: broker/edge/tidemark/append_batches.py
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from itertools import starmap
from typing import Any, Protocol

import anyio

from broker.client.append.outbox import Outbox
from broker.client.errors import ConnectionLost, ProtocolBroken
from broker.client.net.assignment_table import Location
from broker.client.net.connection import Connection, Conversation
from broker.client.net.control_messages import PRODUCE, PRODUCE_CLOSE, producer_metadata
from broker.client.net.retry_rules import RetryVerdict
from broker.client.net.until_first import until_first
from schemas.batches import Landed, scan_append_response
from schemas.encoding.frames import frame_head, frames
from schemas.handshake import APPEND_REVISION, scan_append_greeting
from schemas.wire import (
    Closed,
    Created,
    ProduceAnswer,
    Produced,
    ProduceFailed,
    produce_request,
    scan_produce_response,
)

APPEND = "/tidemark.v1.Log/Append"

WRITE_BYTES_MAX = 256 * 1024
"""Taken from the outbox for one write. What is taken counts as in flight, so its caller can no
longer withdraw it: take little."""

WRITE_S = 30.0
"""A server that keeps its flow-control window shut for so long is taken for lost."""

DRAIN_S = 2.0
"""How long a stream that is to be replaced waits for its answers."""

CLOSE_S = 0.5
"""How long the server may take to end the stream after the goodbye."""

Requests = list[tuple[int, bytes]]
"""Request ids and encoded messages or batches."""


class AnswerSink(Protocol):
    """Receives what the server answers; no method waits."""

    def produced(self, answer: Produced) -> None: ...

    def refused(self, answer: ProduceFailed) -> RetryVerdict: ...

    def answers_done(self, *, progress: bool) -> None:
        """All answers that had arrived are reported; `progress` when one was a success."""
        ...

    def room_made(self) -> None:
        """Appends may have left the outbox without an answer."""
        ...

    def pause_s(self, told_s: float = 0.0) -> float:
        """How long to wait before the stream sends again what was refused for now.

        At least `told_s`, which the server has said.
        """
        ...


class StreamCodec(Protocol):
    """The encoding of one stream; made anew for each stream."""

    path: str
    headers: Mapping[str, str]
    """What the stream's call says beside the producer's metadata."""
    goodbye: bytes
    """The framed message that closes the stream; empty: none is needed."""

    def accepts(self, first: bytes) -> bool:
        """Whether the first answer means that the server took the stream."""
        ...

    def framed(self, requests: Requests) -> bytes: ...

    def answer(self, message: bytes, /) -> ProduceAnswer | None: ...


class ProducerStream:
    """Runs once, by `run`; other tasks end it with `finish` or `abort`.

    Set `work` after putting something into the outbox.
    """

    def __init__(
        self,
        location: Location,
        codec: StreamCodec,
        outbox: Outbox[Any],
        work: asyncio.Event,
        answers: AnswerSink,
    ) -> None:
        self._location = location
        self._codec = codec
        self._outbox = outbox
        self._work = work
        self._answers = answers
        self._finishing = False
        self._aborted = False
        self._replace_because: str | None = None
        self._pause_s = 0.0
        self._idle: Conversation | None = None
        self._unwritten = b""

    async def run(self, connection: Connection, *, open_s: float) -> None:
        """Run from the handshake to the end; return when finished, or to be replaced.

        Raises when the stream ends otherwise. Appends without an answer are in the outbox then.
        """
        metadata = producer_metadata(self._location.channel, self._location.node)
        metadata |= self._codec.headers
        path = self._codec.path
        async with connection.converse(path, metadata, deadline_s=open_s) as stream:
            first, *more = await stream.read(open_s)
            if not self._codec.accepts(first):
                raise ProtocolBroken(f"{connection.address}: unexpected first message on {path}")
            self._take(more)
            await until_first(lambda: self._receive(stream), lambda: self._send(stream))

    def finish(self) -> None:
        """Send all that is in the outbox, await the answers, then close the stream."""
        self._finishing = True
        self._work.set()

    def abort(self) -> None:
        """End at once, because the server has fallen silent."""
        self._aborted = True
        self._work.set()

    def send_at_once(self) -> bool:
        """Send what the outbox has without waiting; False when not possible: set `work` then.

        Fast path: a lone append need not wait a turn of the event loop for the sending task.
        """
        stream = self._idle
        # When `work` is set the sending task runs next; it may have unwritten bytes that go first.
        if stream is None or self._work.is_set() or self._aborted:
            return False
        if self._replace_because is not None or self._pause_s:
            return False
        room = stream.room_now()
        if room <= 0 or not self._outbox.to_send:
            return False
        framed = self._taken(room)
        if not stream.write_at_once(framed):
            # One request may be larger than the room. It is in flight already, so the sending task
            # must write it, in parts, before all else.
            self._unwritten = framed
            return False
        return not self._outbox.to_send

    async def _send(self, stream: Conversation) -> None:
        outbox, work = self._outbox, self._work
        while True:
            if self._aborted:
                raise ConnectionLost(f"{self._location.address} stopped answering")
            if self._unwritten:
                framed, self._unwritten = self._unwritten, b""
                await stream.write(framed, WRITE_S)
            # Before anything is taken: what is still in the outbox is for the next stream.
            if self._replace_because is not None:
                return await self._drain()
            if self._pause_s:
                await self._pause()
            elif outbox.to_send:
                room = await stream.room()
                await stream.write(self._taken(room), WRITE_S)
            elif self._finishing and not outbox.awaits_answers:
                return await self._say_goodbye(stream)
            else:
                work.clear()
                self._idle = stream
                try:
                    await work.wait()
                finally:
                    self._idle = None

    def _taken(self, room: int) -> bytes:
        """The next requests, framed; they are in flight from here on."""
        requests = self._outbox.take(min(room, WRITE_BYTES_MAX))
        self._answers.room_made()  # abandoned ones were dropped
        return self._codec.framed(requests)

    async def _pause(self) -> None:
        """Send nothing for as long as the server asked; no longer than there is something left."""
        pause_s, self._pause_s = self._pause_s, 0.0
        with anyio.move_on_after(pause_s):
            while self._outbox.waits or not self._finishing:
                self._work.clear()
                await self._work.wait()
        self._work.set()

    async def _drain(self) -> None:
        """Wait for the answers in flight, mostly refusals; send nothing more."""
        # A refused append was not stored; one that is cut off without an answer may have been.
        with anyio.move_on_after(DRAIN_S):
            while self._outbox.in_flight:
                self._work.clear()
                await self._work.wait()

    async def _say_goodbye(self, stream: Conversation) -> None:
        with anyio.move_on_after(CLOSE_S):
            if self._codec.goodbye:
                await stream.write(self._codec.goodbye, CLOSE_S)
            await stream.end()
            await anyio.sleep_forever()  # until `_receive` sees the end of the stream

    async def _receive(self, stream: Conversation) -> None:
        # No deadline: silence is only wrong while an append waits, and each of those has its own.
        while True:
            self._take(await stream.read(None))

    def _take(self, messages: list[bytes]) -> None:
        answers = self._answers
        progress = False
        for answer in map(self._codec.answer, messages):
            match answer:
                case Produced():
                    answers.produced(answer)
                    progress = True
                case ProduceFailed():
                    self._react(answers.refused(answer), answer)
                case Closed() | Created() | None:
                    pass
        answers.answers_done(progress=progress)
        # Only for these: waking an idle sending task for each answer costs a turn of the loop.
        if self._finishing or self._replace_because is not None or self._pause_s:
            self._work.set()

    def _react(self, verdict: RetryVerdict, answer: ProduceFailed) -> None:
        match verdict:
            case RetryVerdict.AGAIN:
                # Many refusals of one moment are one failure: the back-off grows once.
                told_ms = answer.retry_ms if isinstance(answer, BatchFailed) else 0
                self._pause_s = self._pause_s or self._answers.pause_s(told_ms / 1000)
            case RetryVerdict.REOPEN | RetryVerdict.REROUTE:
                self._replace_because = answer.cause
            case RetryVerdict.SURFACE:
                pass


class ProduceCodec:
    """Single messages. Each answer carries the id of its request."""

    path = PRODUCE
    headers: Mapping[str, str] = {}
    goodbye = PRODUCE_CLOSE
    answer = staticmethod(scan_produce_response)

    def accepts(self, first: bytes) -> bool:
        return isinstance(scan_produce_response(first), Created)

    def framed(self, requests: Requests) -> bytes:
        return frames(starmap(produce_request, requests))


class BatchFailed(ProduceFailed):
    """A batch was refused; `expected_sequence` counts when the reason is its number.

    `dropped`: the reason is that the collection was dropped.
    """

    expected_sequence: int = 0
    dropped: bool = False
    retry_ms: int = 0


class AppendCodec:
    """Numbered batches. Answers carry no id: each belongs to the oldest batch without an answer."""

    path = APPEND
    headers: Mapping[str, str] = {APPEND_REVISION: "1"}
    goodbye = b""

    def __init__(
        self, address: str, stamp_of: Callable[[int], bytes], greeted: Callable[[int], None]
    ) -> None:
        """`stamp_of`: the encoded number of a batch in flight, by its request id.

        `greeted` is called with the revision of the server before anything is sent.
        """
        self._address = address
        self._stamp_of = stamp_of
        self._greeted = greeted
        self._sent: deque[int] = deque()

    def accepts(self, first: bytes) -> bool:
        revision = scan_append_greeting(first)
        if revision is None:
            return False
        self._greeted(revision)
        return True

    def framed(self, requests: Requests) -> bytes:
        parts: list[bytes] = []
        for request_id, request in requests:
            # Kept here when the append expires: its answer still comes and takes a place in the
            # order.
            self._sent.append(request_id)
            stamp = self._stamp_of(request_id)
            parts += (frame_head(len(stamp) + len(request)), stamp, request)
        return b"".join(parts)

    def answer(self, message: bytes, /) -> ProduceAnswer | None:
        answer = scan_append_response(message)
        if answer is None or not self._sent:
            raise ProtocolBroken(f"{self._address}: an answer came without a batch in flight")
        request_id = self._sent.popleft()
        if isinstance(answer, Landed):
            place = answer.message_id, answer.tick, answer.last_confirmed_id
            return Produced(request_id, *place, durability=answer.durability)
        failed = BatchFailed(request_id, answer.code, answer.cause)
        failed.expected_sequence = answer.expected_sequence
        failed.dropped = answer.dropped
        failed.retry_ms = answer.retry_ms
        return failed
