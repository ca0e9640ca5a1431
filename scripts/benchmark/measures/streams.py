"""Measures message streams beside what they are made of: packs of rows, and produced packs.

In slices that take turns, so that both see the same load of the machine.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

import uvloop

from benchmark import names
from benchmark.baselines.disk import BODY
from benchmark.measures.batches import rows_of
from benchmark.measures.master.together import Values
from benchmark.results.figures import RATE
from broker.client import Client, connect
from broker.msgstream import EncodedPack, InsertMsg, LogPack, TidemarkMsgStreamFactory

ROWS, BODIES = "stream-rows", "stream-bodies"
SHARDS = 4
BATCH = 1_000
IN_FLIGHT = 4
SLICES = 3
READ_SHARE = 4
RUN_S_MAX = 300

Slice = Callable[[], Awaitable[int]]
"""Handles its share; returns how many rows or messages that was."""


class Streams:
    """Of one server. `messages`: of each subject in a round."""

    def __init__(self, address: str, messages: int) -> None:
        self._address = address
        self._batches = max(IN_FLIGHT, messages // BATCH)

    def measure(self) -> Mapping[str, Values]:
        """Rows and messages a second of each."""
        return uvloop.run(asyncio.wait_for(self._measured(), RUN_S_MAX))

    async def _measured(self) -> dict[str, Values]:
        took_s: dict[str, float] = {}
        done: dict[str, int] = {}
        async with connect(self._address) as log:
            load = StreamLoad(log, self._batches)
            await load.prepare()
            slices: dict[str, Slice] = {
                names.ARROW_READS: load.read_arrow,
                names.ARROW_PACKS: load.read_packs,
                names.BODY_APPENDS: load.append_batch,
                names.BODY_PACKS: load.produce,
            }
            for _ in range(SLICES):
                for name, run in slices.items():
                    began_s = time.perf_counter()
                    count = await run()
                    took_s[name] = took_s.get(name, 0.0) + time.perf_counter() - began_s
                    done[name] = done.get(name, 0) + count
            await log.collections.drop(ROWS)
            await log.collections.drop(BODIES)
        return {name: {RATE: done[name] / it} for name, it in took_s.items()}


class StreamLoad:
    """Rows that are read again and again, and bodies that are appended."""

    def __init__(self, log: Client, batches: int) -> None:
        self._log, self._batches = log, batches
        self._rows = 0
        row = InsertMsg.of_rows([BODY], row_ids=[1], timestamps=[1], hash_keys=[0])
        self._body = row.marshal()
        self._writer = TidemarkMsgStreamFactory(log).new_msg_stream()

    async def prepare(self) -> None:
        """Append the rows, and make room for the bodies."""
        rows = rows_of(BATCH)
        await self._log.collections.create(ROWS, shards=SHARDS, schema=rows.schema, exist_ok=True)
        await self._log.collections.create(BODIES, shards=1, exist_ok=True)
        await self._writer.as_producer([BODIES])
        # Many, so that it counts little how the readers open and end.
        for _ in range(self._batches * READ_SHARE):
            await self._log.append_arrow(ROWS, rows)
        self._rows = self._batches * READ_SHARE * BATCH

    async def read_arrow(self) -> int:
        """All rows as RecordBatches."""
        seen = 0
        async for rows in self._log.read_arrow(ROWS, until="now"):
            seen += rows.num_rows
        return seen

    async def read_packs(self) -> int:
        """All rows as packs of a time tick stream."""
        stream = TidemarkMsgStreamFactory(self._log).new_tt_msg_stream()
        await stream.as_consumer([ROWS], "bench")
        await stream.start()
        seen = 0
        while seen < self._rows:
            pack = await stream.consume()
            assert isinstance(pack, LogPack)
            if pack.has_rows:
                seen += pack.rows().num_rows
        await stream.close()
        return seen

    async def append_batch(self) -> int:
        """Bodies in batches, as many in flight as `produce` has."""
        payloads = [self._body] * BATCH

        async def some(count: int) -> None:
            for _ in range(count):
                await self._log.append_batch(BODIES, payloads)

        return await self._in_flight(some)

    async def produce(self) -> int:
        """Packs of the same bodies, each pack made anew."""
        bodies, keys = [self._body] * BATCH, [0] * BATCH

        async def some(count: int) -> None:
            for _ in range(count):
                await self._writer.produce(EncodedPack(bodies, keys))

        return await self._in_flight(some)

    async def _in_flight(self, some: Callable[[int], Awaitable[None]]) -> int:
        each = max(1, self._batches // IN_FLIGHT // SLICES)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.create_task(_awaited(some(each)))
        return each * IN_FLIGHT * BATCH


async def _awaited(call: Awaitable[None]) -> None:
    await call
