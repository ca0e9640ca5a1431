"""One Produce stream from handshake to end: writes what the outbox has, hands answers on.

It owns nothing that outlives the stream. It never fails an append: whoever gave the outbox does.
Next: broker/edge/milvus/produce.py
"""

import asyncio
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
from schemas.encoding.frames import frames
from schemas.wire import (
    Closed,
    Created,
    ProduceAnswer,
    Produced,
    ProduceFailed,
    produce_request,
    scan_produce_response,
)

WRITE_BYTES_MAX = 256 * 1024
"""Taken for one write; what is taken counts as sent, so it should be little."""

WRITE_S = 30.0
DRAIN_S = 2.0
"""How long answers are waited for on a stream that is to be replaced."""

CLOSE_S = 0.5
"""How long the server may take to say goodbye."""

Sendable = Outbox[Any]
"""Whatever waits for the answers is not looked at here."""


class AnswerSink(Protocol):
    """Who is told what the server says; nothing here waits."""

    def produced(self, answer: Produced) -> None: ...

    def refused(self, answer: ProduceFailed) -> RetryVerdict: ...

    def batch_done(self, *, progress: bool) -> None:
        """All answers that had arrived are handed over; `progress` when one was a success."""
        ...

    def pause_s(self) -> float:
        """How long to wait before repeating what was refused for now."""
        ...


class ProduceStream:
    """Use once: `run`, and `finish` or `give_up` from outside.

    `work` is set by whoever put something into the outbox.
    """

    path = PRODUCE
    goodbye = PRODUCE_CLOSE

    def __init__(
        self, location: Location, outbox: Sendable, work: asyncio.Event, answers: AnswerSink
    ) -> None:
        self._location = location
        self._outbox = outbox
        self._work = work
        self._answers = answers
        self._finishing = False
        self._given_up = False
        self._replace_because: str | None = None
        self._pause_s = 0.0
        self._idle: Conversation | None = None
        self._unwritten = b""

    async def run(self, connection: Connection, *, open_s: float) -> None:
        """From the handshake to the end; returns when it was finished or is to be replaced.

        Raises what ended it otherwise. Appends without an answer are then still in the outbox.
        """
        metadata = producer_metadata(self._location.channel, self._location.node)
        async with connection.converse(self.path, metadata, deadline_s=open_s) as stream:
            first, *more = await stream.read(open_s)
            if not self._accepts(first):
                raise ProtocolBroken(f"{connection.address}: a stream began with no acceptance")
            self._take(more)
            await until_first(lambda: self._receive(stream), lambda: self._send(stream))

    def finish(self) -> None:
        """Send and await all that is in the outbox, then close politely."""
        self._finishing = True
        self._work.set()

    def give_up(self) -> None:
        """The server has fallen silent: end at once."""
        self._given_up = True
        self._work.set()

    def send_at_once(self) -> bool:
        """Send what the outbox has, when nothing is to be waited for; else False: set `work`.

        Saves an append that is alone a turn of the loop and the task that is woken in it.
        """
        stream = self._idle
        if stream is None or self._work.is_set() or self._given_up:
            return False
        if self._replace_because is not None or self._pause_s:
            return False
        room = stream.room_now()
        if room <= 0 or not self._outbox.to_send:
            return False
        framed = self._framed(self._outbox.take(min(room, WRITE_BYTES_MAX)))
        if not stream.write_at_once(framed):
            self._unwritten = framed  # one that is larger than the room goes out in parts
            return False
        return not self._outbox.to_send

    async def _send(self, stream: Conversation) -> None:
        outbox, work = self._outbox, self._work
        while True:
            if self._given_up:
                raise ConnectionLost(f"{self._location.address} stopped answering")
            if self._unwritten:
                framed, self._unwritten = self._unwritten, b""
                await stream.write(framed, WRITE_S)
            if self._replace_because is not None:
                return await self._drain()
            if self._pause_s:
                pause_s, self._pause_s = self._pause_s, 0.0
                await anyio.sleep(pause_s)
            elif outbox.to_send:
                room = await stream.room()
                requests = outbox.take(min(room, WRITE_BYTES_MAX))
                await stream.write(self._framed(requests), WRITE_S)
            elif self._finishing and not outbox.in_flight:
                return await self._say_goodbye(stream)
            else:
                work.clear()
                self._idle = stream
                try:
                    await work.wait()
                finally:
                    self._idle = None

    async def _drain(self) -> None:
        """What is on its way will be answered soon, as refusals mostly; nothing more is sent."""
        with anyio.move_on_after(DRAIN_S):
            while self._outbox.in_flight:
                self._work.clear()
                await self._work.wait()

    async def _say_goodbye(self, stream: Conversation) -> None:
        with anyio.move_on_after(CLOSE_S):
            if self.goodbye:
                await stream.write(self.goodbye, CLOSE_S)
            await stream.end()
            await anyio.sleep_forever()

    def _answer(self, message: bytes) -> ProduceAnswer | None:
        return scan_produce_response(message)

    def _accepts(self, first: bytes) -> bool:
        return isinstance(scan_produce_response(first), Created)

    def _framed(self, requests: list[tuple[int, bytes]]) -> bytes:
        return frames(starmap(produce_request, requests))

    async def _receive(self, stream: Conversation) -> None:
        """No deadline: silence is only wrong while an append waits, and each of those has one."""
        while True:
            self._take(await stream.read(None))

    def _take(self, messages: list[bytes]) -> None:
        answers = self._answers
        progress = False
        for answer in map(self._answer, messages):
            match answer:
                case Produced():
                    answers.produced(answer)
                    progress = True
                case ProduceFailed():
                    self._react(answers.refused(answer), answer)
                case Closed() | Created() | None:
                    pass
        answers.batch_done(progress=progress)
        if self._finishing or self._replace_because is not None or self._pause_s:
            self._work.set()

    def _react(self, verdict: RetryVerdict, answer: ProduceFailed) -> None:
        match verdict:
            case RetryVerdict.AGAIN:
                self._pause_s = self._pause_s or self._answers.pause_s()
            case RetryVerdict.REOPEN | RetryVerdict.REROUTE:
                self._replace_because = answer.cause
            case RetryVerdict.SURFACE:
                pass
