"""What `scripts/measure.py` measures of batches: in by calls and by tasks, out from disk and tail.

Never starts a server. Every figure is of durable messages a second, as that file says.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pyarrow as pa
import uvloop

from broker.client import Client, connect

BODY = bytes(range(256)) * 4
BATCH = 1000
BATCHES_IN_FLIGHT = 4
ROUND_S_MAX = 120
ROWS = "bench_rows"
VCHANNEL = "by-dev-rootcoord-dml_1_2v0"


class Batches:
    """The native protocol, through the Python client."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._start = 1

    def append(self, messages: int) -> float:
        """Four tasks, each with one batch of 1,000 under way."""
        return within(self._append(messages))

    def append_arrow(self, messages: int) -> float:
        """Four tasks, each with one batch of 1,000 rows under way; ten times as many rows."""
        return within(self._append_arrow(messages * 10))

    def append_singly(self, tasks: int, messages: int) -> float:
        """So many tasks, each with one append of one message under way; the client gathers them."""
        return within(self._append_singly(tasks, messages // 2))

    def read(self, messages: int) -> float:
        """All that `append` wrote in this round, every payload cut out of its batch."""
        return within(self._read(messages))

    def tail(self, messages: int) -> float:
        """What is appended meanwhile, read as it comes; the append sets the pace."""
        return within(self._tail(messages))

    async def _append(self, messages: int) -> float:
        async with connect(self._address) as log:
            await log.append(VCHANNEL, BODY)
            self._start = (await log.describe([VCHANNEL]))[VCHANNEL].next_id
            started = asyncio.get_running_loop().time()
            await _load(log, messages)
            return messages / (asyncio.get_running_loop().time() - started)

    async def _append_arrow(self, rows: int) -> float:
        batch = rows_of(BATCH)
        async with connect(self._address) as log:
            if ROWS not in [it.name for it in await log.collections.list()]:
                await log.collections.create(ROWS, schema=batch.schema)
            await log.append_arrow(ROWS, batch)

            async def batches() -> None:
                for _ in range(rows // BATCH // BATCHES_IN_FLIGHT):
                    await log.append_arrow(ROWS, batch)

            started = asyncio.get_running_loop().time()
            async with asyncio.TaskGroup() as group:
                for _ in range(BATCHES_IN_FLIGHT):
                    group.create_task(batches())
            return rows / (asyncio.get_running_loop().time() - started)

    async def _append_singly(self, tasks: int, messages: int) -> float:
        async with connect(self._address) as log:
            await log.append(VCHANNEL, BODY)
            started = asyncio.get_running_loop().time()
            async with asyncio.TaskGroup() as group:
                for _ in range(tasks):
                    group.create_task(_one_by_one(log, messages // tasks))
            return messages / (asyncio.get_running_loop().time() - started)

    async def _read(self, messages: int) -> float:
        seen = 0
        async with connect(self._address) as log:
            started = asyncio.get_running_loop().time()
            async for batch in log.read_batches(VCHANNEL, start=self._start):
                seen += len(batch.payloads)
                if seen >= messages:
                    break
            return seen / (asyncio.get_running_loop().time() - started)

    async def _tail(self, messages: int) -> float:
        seen = 0
        async with (
            connect(self._address) as log,
            log.read_batches(VCHANNEL, start="latest") as tail,
        ):
            started = asyncio.get_running_loop().time()
            async with asyncio.TaskGroup() as group:
                group.create_task(_load(log, messages))
                async for batch in tail:
                    seen += len(batch.payloads)
                    if seen >= messages:
                        break
            return seen / (asyncio.get_running_loop().time() - started)


async def _load(log: Client, messages: int) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(BATCHES_IN_FLIGHT):
            group.create_task(_batches(log, messages // BATCH // BATCHES_IN_FLIGHT))


async def _batches(log: Client, batches: int) -> None:
    payloads = [BODY] * BATCH
    for _ in range(batches):
        await log.append_batch(VCHANNEL, payloads)


async def _one_by_one(log: Client, messages: int) -> None:
    for _ in range(messages):
        await log.append(VCHANNEL, BODY)


def rows_of(count: int) -> Any:
    """Ten columns, 100 bytes a row."""
    numbers = {f"n{at}": pa.array(range(at, at + count), pa.int64()) for at in range(8)}
    texts = {name: [f"{name}-{at % 50:010}" for at in range(count)] for name in ("here", "away")}
    return pa.record_batch(numbers | texts)


def within(work: Awaitable[float]) -> float:
    """A measurement that does not end is a failure, not a wait."""

    async def bounded() -> float:
        return await asyncio.wait_for(work, ROUND_S_MAX)

    return uvloop.run(bounded())
