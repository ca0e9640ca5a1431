"""Measures readers of many vchannels beside readers of few, with the same batches."""

import asyncio
import time

from benchmark.baselines.disk import BODY
from benchmark.results.figures import RATE
from broker.client import Client, connect
from broker.client.cluster.targets import NewVChannel

PCHANNELS = 16
BATCH = 20
IN_FLIGHT = 64


class Channels:
    """`count` vchannels on all pchannels of one server, and one reader of all of them."""

    def __init__(self, address: str, count: int, first: int) -> None:
        self._address = address
        self._names = [
            NewVChannel(f"by-dev-rootcoord-dml_{at % PCHANNELS}_{first + at}v0")
            for at in range(count)
        ]
        self._held, self._ticks = 0, (0, 0)

    async def catch_up(self, messages: int) -> dict[str, float]:
        """Read what was appended to these vchannels once, up to its tick."""
        async with connect(self._address) as log:
            if self._held < messages:
                start_tick = await self._tick(log)
                self._held = await self._load(log, messages)
                self._ticks = start_tick, await self._tick(log)
            return await self._read(log, self._held, *self._ticks)

    async def tail(self, messages: int) -> dict[str, float]:
        """Read messages while they are appended."""
        async with connect(self._address) as log, connect(self._address) as other:
            start_tick = await self._tick(log)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._load(other, messages))
                return await self._read(log, messages // BATCH * BATCH, start_tick)

    async def _load(self, log: Client, messages: int) -> int:
        batches = messages // BATCH
        turns = iter(range(batches))

        async def work() -> None:
            payloads = [BODY] * BATCH
            for turn in turns:
                await log.append_batch(self._names[turn % len(self._names)], payloads)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.create_task(work())
        return batches * BATCH

    async def _tick(self, log: Client) -> int:
        """A tick after every stored message."""
        return (await log.cut(self._names[:PCHANNELS])).tick

    async def _read(
        self, log: Client, wanted: int, start_tick: int, until: int | None = None
    ) -> dict[str, float]:
        """Measured from the first batch on, because opening 5,000 vchannels takes 0.2 s once."""
        seen = 0
        async with log.read_batches(self._names, start=("tick", start_tick), until=until) as reader:
            async for batch in reader:
                if len(batch) and not seen:
                    first, started = len(batch), time.perf_counter()
                seen += len(batch.payloads)
                if seen >= wanted:
                    break
        return {RATE: (seen - first) / (time.perf_counter() - started), "messages": seen}
