"""Measures Tidemark's latency: one append at a time, at a fixed rate, and from append to reader."""

import asyncio
import time
from functools import partial

from benchmark.baselines.disk import BODY
from benchmark.load.pace import Answers, Pace
from benchmark.results.figures import percentile, quantiles
from broker.client import BatchScanner, Durability, Message, Tls, connect
from broker.client.cluster.targets import NewVChannel

VCHANNEL = NewVChannel("by-dev-rootcoord-dml_2_3v0")
NUMBER_BYTES = 8
REST = BODY[NUMBER_BYTES:]
"""Of a message that begins with its number."""
TICK_LOGICAL_BITS = 18


class Latency:
    """Measures one server with the Python client."""

    def __init__(self, address: str, tls: Tls | None = None) -> None:
        self._connected = partial(connect, address, tls=tls)

    async def one_by_one(self, durability: Durability, times: int) -> dict[str, float]:
        """Append from one task that awaits each append."""
        took_s = []
        async with self._connected() as log:
            await log.append(VCHANNEL, BODY)
            for _ in range(times):
                started = time.perf_counter()
                await log.append(VCHANNEL, BODY, durability=durability)
                took_s.append(time.perf_counter() - started)
        return quantiles(took_s) | {"messages": times}

    async def at_pace(self, pace: Pace) -> dict[str, float]:
        """Append at a fixed rate; each latency counts from when the append was due."""
        answers = Answers(pace.messages)
        async with self._connected() as log:
            await log.append(VCHANNEL, BODY)
            message = Message(BODY)

            async def offer(count: int, due_s: float) -> None:
                for _ in range(count):
                    answers.settles(await log.append_soon(VCHANNEL, message), due_s)

            await pace.keep(offer)
            return await answers.quantiles() | {"messages": pace.messages}

    async def to_a_reader(self, pace: Pace) -> dict[str, float]:
        """Measure from when each append was due until a reader has its payload, and tick ages.

        The reader is open before the first append: opening it is not measured.
        """
        answers = Answers(pace.messages)
        due_at: list[float] = []
        async with (
            self._connected() as log,
            self._connected() as other,
        ):
            last = await log.append(VCHANNEL, BODY)
            tail = other.read_batches(VCHANNEL, start=last.id)
            assert (await anext(tail)).ids[0] == last.id
            fresh = Freshness()

            async def offer(count: int, due_s: float) -> None:
                fresh.sample()
                for _ in range(count):
                    payload = len(due_at).to_bytes(NUMBER_BYTES, "little") + REST
                    due_at.append(due_s)
                    await log.append_soon(VCHANNEL, Message(payload))

            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(_read(tail, answers, due_at, fresh))
                await pace.keep(offer)
                found = await answers.quantiles()
                reading.cancel()
            return found | {"messages": pace.messages} | fresh.figures()


class Freshness:
    """The age of a reader's newest closed tick, sampled every millisecond."""

    def __init__(self) -> None:
        self._closed_ms = 0
        self._ages_s: list[float] = []

    def closed(self, tick: int) -> None:
        """Take note of a closed tick that a reader got."""
        self._closed_ms = max(self._closed_ms, tick >> TICK_LOGICAL_BITS)

    def sample(self) -> None:
        """Sample the age of the newest closed tick; nothing before the first one."""
        if self._closed_ms:
            self._ages_s.append(time.time() - self._closed_ms / 1000)

    def figures(self) -> dict[str, float]:
        """The percentiles of the samples."""
        return {
            "fresh_p50_ms": percentile(self._ages_s, 0.5) * 1000,
            "fresh_p99_ms": percentile(self._ages_s, 0.99) * 1000,
        }


async def _read(
    tail: BatchScanner, answers: Answers, due_at: list[float], fresh: Freshness
) -> None:
    async for batch in tail:
        fresh.closed(batch.closed_tick)
        for payload in batch.payloads:
            answers.came(due_at[int.from_bytes(payload[:NUMBER_BYTES], "little")])
