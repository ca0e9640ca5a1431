"""Measures NATS JetStream: one stream on disk, one replica, publishes with acknowledgements."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmark.baselines.disk import BODY
from benchmark.load.pace import Answers, Pace
from benchmark.results.figures import RATE, quantiles

IN_FLIGHT = TOGETHER = 1000
CONSUMER = "workers"
STREAM, SUBJECT = "bench", "bench.messages"
MESSAGE_S_MAX = 30.0


class JetStream:
    """Publishes to one NATS server and reads from it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._held = 0

    async def append(self, messages: int) -> dict[str, float]:
        """Publish with 1,000 unacknowledged messages in flight."""
        async with self._stream() as stream:
            started = time.perf_counter()
            for _ in range(messages):
                await stream.publish_async(SUBJECT, BODY, wait_stall=MESSAGE_S_MAX)
            await stream.publish_async_completed()
            took_s = time.perf_counter() - started
            held = (await stream.stream_info(STREAM)).state.messages
            if held != messages:
                raise RuntimeError(f"JetStream holds {held} of {messages} messages")
            self._held = messages
            return {RATE: messages / took_s, "messages": messages}

    async def read(self, messages: int) -> dict[str, float]:
        """Read with an ordered push consumer, without acknowledgements."""
        if self._held < messages:
            await self.append(messages)
        async with self._connected() as stream:
            reader = await stream.subscribe(SUBJECT, stream=STREAM, ordered_consumer=True)
            started = time.perf_counter()
            for _ in range(messages):
                await reader.next_msg(timeout=MESSAGE_S_MAX)
            took_s = time.perf_counter() - started
            await reader.unsubscribe()
            return {RATE: messages / took_s, "messages": messages}

    async def take_all(self, messages: int) -> dict[str, float]:
        """Fetch 1,000 messages a call and acknowledge each; the last one of a call is awaited."""
        from nats.js.api import ConsumerConfig  # noqa: PLC0415 - it may be missing

        if self._held < messages:
            await self.append(messages)
        async with self._connected() as stream:
            config = ConsumerConfig(max_ack_pending=2 * TOGETHER)
            worker = await stream.pull_subscribe(
                SUBJECT, durable=CONSUMER, stream=STREAM, config=config
            )
            seen = 0
            started = time.perf_counter()
            while seen < messages:
                fetched = await worker.fetch(TOGETHER, timeout=MESSAGE_S_MAX)
                for message in fetched[:-1]:
                    await message.ack()
                await fetched[-1].ack_sync(timeout=MESSAGE_S_MAX)
                seen += len(fetched)
            took_s = time.perf_counter() - started
            await worker.unsubscribe()
            await stream.delete_consumer(STREAM, CONSUMER)
            return {RATE: seen / took_s, "messages": seen}

    async def one_by_one(self, times: int) -> dict[str, float]:
        """Publish one message after the other, each awaited."""
        took_s = []
        async with self._stream() as stream:
            for _ in range(times):
                started = time.perf_counter()
                await stream.publish(SUBJECT, BODY)
                took_s.append(time.perf_counter() - started)
        return quantiles(took_s) | {"messages": times}

    async def at_pace(self, pace: Pace) -> dict[str, float]:
        """Publish each message when it is due, with at most 1,000 in flight."""
        answers = Answers(pace.messages)
        async with self._stream() as stream:

            async def offer(count: int, due_s: float) -> None:
                for _ in range(count):
                    answers.settles(await stream.publish_async(SUBJECT, BODY, 60.0), due_s)

            await pace.keep(offer)
            return await answers.quantiles() | {"messages": pace.messages}

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[Any]:
        """Make an empty stream."""
        self._held = 0
        async with self._connected() as stream:
            if any(it.config.name == STREAM for it in await stream.streams_info()):
                await stream.delete_stream(STREAM)
            await stream.add_stream(name=STREAM, subjects=[SUBJECT], num_replicas=1)
            yield stream

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        import nats  # noqa: PLC0415 - it may be missing

        connection = await nats.connect(self._url)
        try:
            yield connection.jetstream(publish_async_max_pending=IN_FLIGHT, timeout=MESSAGE_S_MAX)
        finally:
            await connection.close()
