"""Measures Tidemark's native protocol: appending in batches, reading from disk and live."""

import asyncio
import time
from functools import partial
from typing import Any

from benchmark.baselines.disk import BODY
from benchmark.results.figures import RATE
from broker.client import Client, Durability, Tls, connect
from broker.client.cluster.targets import NewVChannel

BATCH = 1000
BATCHES_IN_FLIGHT = 4
ROWS_IN_FLIGHT = 8
ROWS = "bench_rows"
VCHANNEL = NewVChannel("by-dev-rootcoord-dml_1_2v0")


class Batches:
    """Appends to one server and reads from it, with the Python client."""

    def __init__(self, address: str, tls: Tls | None = None) -> None:
        self._connected = partial(connect, address, tls=tls)
        self._start, self._held = 1, 0
        self.start_tick = 0
        """That of the first message that is there to be read."""

    async def append(self, durability: Durability, messages: int) -> dict[str, float]:
        """Append from four tasks, each with one batch of 1,000 in flight."""
        async with self._connected() as log:
            start_tick = (await log.append(VCHANNEL, BODY)).tick + 1
            start = (await log.offsets.describe([VCHANNEL]))[VCHANNEL].next_id
            started = time.perf_counter()
            sent = await load(log, VCHANNEL, messages, durability)
            took_s = time.perf_counter() - started
            await log.append(VCHANNEL, BODY)  # the next subject does not begin before the sync
        if durability == "fsync":
            self._start, self._held, self.start_tick = start, sent, start_tick
        return {RATE: sent / took_s, "messages": sent}

    async def append_rows(self, rows: int) -> dict[str, float]:
        """Append from eight tasks, each with one batch of 1,000 rows in flight."""
        batch = rows_of(BATCH)
        async with self._connected() as log:
            if ROWS not in [it.name for it in await log.collections.list()]:
                await log.collections.create(ROWS, schema=batch.schema)
            await log.append_arrow(ROWS, batch)
            each = rows // BATCH // ROWS_IN_FLIGHT

            async def batches() -> None:
                for _ in range(each):
                    await log.append_arrow(ROWS, batch)

            started = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(ROWS_IN_FLIGHT):
                    group.create_task(batches())
            sent = each * ROWS_IN_FLIGHT * BATCH
            return {RATE: sent / (time.perf_counter() - started), "messages": sent}

    async def append_singly(self, tasks: int, messages: int) -> dict[str, float]:
        """Append from many tasks that each await one message; the client gathers batches."""
        async with self._connected() as log:
            await log.append(VCHANNEL, BODY)
            started = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(tasks):
                    group.create_task(_one_by_one(log, messages // tasks))
            sent = messages // tasks * tasks
            return {RATE: sent / (time.perf_counter() - started), "messages": sent}

    async def held(self, messages: int) -> tuple[int, int]:
        """The first id and the number of messages that are there to be read; at least so many."""
        if self._held < messages:
            # `append` rounds down, and would append nothing for a few.
            await self.append("fsync", max(messages, BATCH * BATCHES_IN_FLIGHT))
        return self._start, self._held

    async def read(self, messages: int) -> dict[str, float]:
        """Read back everything that `append` wrote, each payload cut out of its batch."""
        await self.held(messages)
        seen = 0
        async with self._connected() as log:
            await log.offsets.describe([VCHANNEL])  # connects, with TLS that takes a while
            started = time.perf_counter()
            async for batch in log.read_batches(VCHANNEL, start=self._start):
                seen += len(batch.payloads)
                if seen >= self._held:
                    break
            return {RATE: seen / (time.perf_counter() - started), "messages": seen}

    async def warm(self, messages: int) -> None:
        """What comes before a read that is measured, so that none is the first one.

        An idle broker has given memory back, and whatever reads first pays for that.
        """
        await self.read(messages)

    async def tail(self, messages: int) -> dict[str, float]:
        """Read messages while they are appended; the append sets the rate."""
        seen = 0
        async with (
            self._connected() as log,
            self._connected() as other,
        ):
            next_id = (await log.offsets.describe([VCHANNEL]))[VCHANNEL].next_id
            tail = other.read_batches(VCHANNEL, start=next_id)
            started = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                group.create_task(load(log, VCHANNEL, messages, "fsync"))
                wanted = messages // BATCH // BATCHES_IN_FLIGHT * BATCH * BATCHES_IN_FLIGHT
                async for batch in tail:
                    seen += len(batch.payloads)
                    if seen >= wanted:
                        break
            return {RATE: seen / (time.perf_counter() - started), "messages": seen}


async def load(log: Client, vchannel: NewVChannel, messages: int, durability: Durability) -> int:
    """Append from four tasks, each with one batch in flight; the number of messages sent."""
    each = messages // BATCH // BATCHES_IN_FLIGHT
    async with asyncio.TaskGroup() as group:
        for _ in range(BATCHES_IN_FLIGHT):
            group.create_task(_batches(log, vchannel, each, durability))
    return each * BATCHES_IN_FLIGHT * BATCH


async def _batches(
    log: Client, vchannel: NewVChannel, batches: int, durability: Durability
) -> None:
    payloads = [BODY] * BATCH
    for _ in range(batches):
        await log.append_batch(vchannel, payloads, durability=durability)


async def _one_by_one(log: Client, messages: int) -> None:
    for _ in range(messages):
        await log.append(VCHANNEL, BODY)


def rows_of(count: int) -> Any:
    """A RecordBatch of ten columns, 100 bytes a row."""
    import pyarrow as pa  # noqa: PLC0415 - rows alone need it

    numbers = {f"n{at}": pa.array(range(at, at + count), pa.int64()) for at in range(8)}
    texts = {name: [f"{name}-{at % 50:010}" for at in range(count)] for name in ("here", "away")}
    return pa.record_batch(numbers | texts)
