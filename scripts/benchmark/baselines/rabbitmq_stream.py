"""Measures RabbitMQ streams: one stream of one replica, by the stream protocol.

A confirm says that the message was written on one replica: nothing syncs it before, so it survives
the end of the server's process, but not the end of the machine.
"""

import asyncio
import importlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from benchmark.baselines.disk import BODY
from benchmark.load.pace import Answers, Pace
from benchmark.results.figures import RATE, quantiles

IN_FLIGHT = 1000
BATCH = 500
"""Two of them are in flight: 1,000 messages do not fit into a frame of RabbitMQ's 1 MiB."""
STREAM = "bench"
CALL_S_MAX = 30.0
USER = "guest"


class RabbitMQStream:
    """Publishes to one stream of one server and reads from it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._held = 0

    async def append(self, batch: int, messages: int) -> dict[str, float]:
        """Publish that many in each frame, with at most 1,000 messages unconfirmed."""
        async with self._producer() as producer:
            waiting = Confirms()
            bodies = [BODY] * batch
            started = time.perf_counter()
            for _ in range(messages // batch):
                await waiting.room(IN_FLIGHT - batch)
                waiting.count += batch
                await producer.send_batch(STREAM, bodies, on_publish_confirm=waiting.came)
            await waiting.room(0)
            took_s = time.perf_counter() - started
            self._held = messages // batch * batch
            return {RATE: self._held / took_s, "messages": self._held}

    async def one_by_one(self, times: int) -> dict[str, float]:
        """Publish one message after the other, each confirmed before the next."""
        took_s = []
        async with self._producer() as producer:
            for _ in range(times):
                started = time.perf_counter()
                await producer.send_wait(STREAM, BODY, timeout=CALL_S_MAX)
                took_s.append(time.perf_counter() - started)
        return quantiles(took_s) | {"messages": times}

    async def at_pace(self, pace: Pace) -> dict[str, float]:
        """Publish what is due together in one frame."""
        answers = Answers(pace.messages)
        async with self._producer() as producer:

            async def offer(count: int, due_s: float) -> None:
                confirmed = partial(_confirmed, answers, due_s)
                await producer.send_batch(STREAM, [BODY] * count, on_publish_confirm=confirmed)

            await pace.keep(offer)
            return await answers.quantiles() | {"messages": pace.messages}

    async def read(self, messages: int) -> dict[str, float]:
        """Read from the start of the stream; the client hands over each payload by a call."""
        if self._held < messages:
            await self.append(BATCH, messages)
        host, port = self._address
        seen, done = 0, asyncio.Event()

        def came(payload: bytes, _context: Any) -> None:
            nonlocal seen
            seen += len(payload)
            if seen >= self._held * len(BODY):
                done.set()

        async with _client().Consumer(host, port, username=USER, password=USER) as consumer:
            started = time.perf_counter()
            await consumer.subscribe(STREAM, came, decoder=bytes)
            async with asyncio.timeout(CALL_S_MAX):
                await done.wait()
            took_s = time.perf_counter() - started
            return {RATE: self._held / took_s, "messages": self._held}

    @asynccontextmanager
    async def _producer(self) -> AsyncIterator[Any]:
        """A publisher to an empty stream."""
        host, port = self._address
        self._held = 0
        async with _client().Producer(host, port, username=USER, password=USER) as producer:
            if await producer.stream_exists(STREAM):
                await producer.delete_stream(STREAM)
            await producer.create_stream(STREAM)
            yield producer


class Confirms:
    """Counts messages without a confirm; a refused one ends the run."""

    def __init__(self) -> None:
        self.count = 0
        self._refused = 0
        self._news = asyncio.Event()

    def came(self, status: Any) -> None:
        """Take the confirm of a message, or its refusal."""
        self.count -= 1
        self._refused = self._refused or (0 if status.is_confirmed else status.response_code)
        self._news.set()

    async def room(self, limit: int) -> None:
        """Wait until at most so many are unconfirmed. Raises RuntimeError for a refusal."""
        while self.count > limit and not self._refused:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), CALL_S_MAX)
            except TimeoutError:
                told = f"{self.count} messages without a confirm after {CALL_S_MAX:.0f} s"
                raise RuntimeError(f"RabbitMQ: {told}") from None
        if self._refused:
            raise RuntimeError(f"RabbitMQ refused a message: response code {self._refused}")


def _confirmed(answers: Answers, due_s: float, status: Any) -> None:
    """Count a confirm; a refused message is missing at the end."""
    if status.is_confirmed:
        answers.came(due_s)


def _client() -> Any:
    """The client, which may be missing."""
    return importlib.import_module("rstream")
