"""Measures Redis Streams: one stream, filled through pipelines and read back from its start."""

import asyncio
import time
from typing import Any

from benchmark.baselines.disk import BODY
from benchmark.load.pace import Answers, Pace
from benchmark.results.figures import RATE, quantiles

TOGETHER = 1000
CONNECTIONS = 32
STREAM, GROUP = "bench", "workers"


class RedisStreams:
    """Appends to one Redis server and reads from it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._held = 0

    def append(self, messages: int) -> dict[str, float]:
        """Append by XADD in pipelines of 1,000, one after the other."""
        self._server.delete(STREAM)
        started = time.perf_counter()
        for at in range(0, messages, TOGETHER):
            pipeline = self._server.pipeline(transaction=False)
            for _ in range(min(TOGETHER, messages - at)):
                pipeline.xadd(STREAM, {"b": BODY})
            pipeline.execute()
        self._held = messages
        return {RATE: messages / (time.perf_counter() - started), "messages": messages}

    def read(self, messages: int) -> dict[str, float]:
        """Read by XREAD, 1,000 messages a call, from the start."""
        if self._held < messages:
            self.append(messages)
        last, seen = "0", 0
        started = time.perf_counter()
        while seen < messages:
            (_, entries) = self._server.xread({STREAM: last}, count=TOGETHER)[0]
            last, seen = entries[-1][0], seen + len(entries)
        return {RATE: seen / (time.perf_counter() - started), "messages": seen}

    def take_all(self, messages: int) -> dict[str, float]:
        """Take by XREADGROUP, 1,000 messages a call, and acknowledge each call by one XACK."""
        if self._held < messages:
            self.append(messages)
        return self._taken(messages, TOGETHER)

    def take_one_by_one(self, messages: int) -> dict[str, float]:
        """Take and acknowledge messages one after the other."""
        if self._held < messages:
            self.append(messages)
        return self._taken(messages, 1)

    def _taken(self, messages: int, together: int) -> dict[str, float]:
        self._server.xgroup_create(STREAM, GROUP, id="0")
        seen = 0
        started = time.perf_counter()
        while seen < messages:
            (_, entries) = self._server.xreadgroup(GROUP, "one", {STREAM: ">"}, count=together)[0]
            self._server.xack(STREAM, GROUP, *[id for id, _ in entries])
            seen += len(entries)
        took_s = time.perf_counter() - started
        self._server.xgroup_destroy(STREAM, GROUP)
        return {RATE: seen / took_s, "messages": seen}

    def one_by_one(self, times: int) -> dict[str, float]:
        """Append by XADD, each awaited."""
        took_s = []
        for _ in range(times):
            started = time.perf_counter()
            self._server.xadd(STREAM, {"b": BODY})
            took_s.append(time.perf_counter() - started)
        return quantiles(took_s) | {"messages": times}

    async def at_pace(self, pace: Pace) -> dict[str, float]:
        """Append what is due together as one pipeline, on one of up to 32 connections."""
        from redis.asyncio import BlockingConnectionPool, Redis  # noqa: PLC0415 - may be missing

        answers = Answers(pace.messages)
        place = self._server.get_connection_kwargs()
        pool = BlockingConnectionPool(
            max_connections=CONNECTIONS, timeout=None, host=place["host"], port=place["port"]
        )
        async with Redis.from_pool(pool) as redis:
            async with asyncio.TaskGroup() as tasks:

                async def offer(count: int, due_s: float) -> None:
                    pipeline = redis.pipeline(transaction=False)
                    for _ in range(count):
                        pipeline.xadd(STREAM, {"b": BODY})
                    answers.settles(tasks.create_task(pipeline.execute()), due_s, count)

                await pace.keep(offer)
            return await answers.quantiles() | {"messages": pace.messages}
