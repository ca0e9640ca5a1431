"""Measures a consumer group: one member that takes and acknowledges, at once and one by one."""

import asyncio
import time

from benchmark.measures.batches import BATCH, VCHANNEL, Batches
from benchmark.results.figures import MESSAGES, RATE
from broker.client import Client, connect
from broker.client.errors import ResourceAcquired
from broker.client.groups.leased_batch import LeasedBatch

IN_FLIGHT = 16
"""Acknowledgements that wait for their answers at the most, while the member takes on."""
LEAVE_PAUSE_S = 0.01


class GroupTakes:
    """Groups of what `batches` appended; each run has a group of its own."""

    def __init__(self, address: str, batches: Batches) -> None:
        self._address = address
        self._batches = batches
        self._made = 0

    async def take_all(self, messages: int) -> dict[str, float]:
        """Take batches of 1,000, cut out their payloads, and acknowledge each batch."""
        await self._batches.held(messages)
        async with connect(self._address) as log:
            group = await self._group(log)
            started = time.perf_counter()
            seen = await self._taken(log, group, messages // BATCH * BATCH)
            took_s = time.perf_counter() - started
            await self._drop(log, group)
            return {RATE: seen / took_s, MESSAGES: seen}

    async def one_by_one(self, messages: int) -> dict[str, float]:
        """Process messages one after the other, each acknowledged before the next."""
        await self._batches.held(messages)
        seen = 0
        async with connect(self._address) as log:
            group = await self._group(log)
            started = time.perf_counter()
            async with log.group(group).join(VCHANNEL) as member:
                async for batch in member:
                    for message in batch.messages[: messages - seen]:
                        await batch.ack([message])
                        seen += 1
                    if seen >= messages:
                        break
                took_s = time.perf_counter() - started
            await self._drop(log, group)
            return {RATE: seen / took_s, MESSAGES: seen}

    async def _taken(self, log: Client, group: str, wanted: int) -> int:
        slots, seen = asyncio.Semaphore(IN_FLIGHT), 0

        async def acknowledge(batch: LeasedBatch) -> None:
            try:
                await batch.ack()
            finally:
                slots.release()

        async with log.group(group).join(VCHANNEL) as member, asyncio.TaskGroup() as tasks:
            async for batch in member:
                seen += len(batch.payloads)
                await slots.acquire()
                tasks.create_task(acknowledge(batch))
                if seen >= wanted:
                    return seen
        raise RuntimeError(f"the member ended after {seen} of {wanted} messages")

    async def _group(self, log: Client) -> str:
        self._made += 1
        name = f"bench-{self._made}"
        await log.group(name).create(VCHANNEL, start=("tick", self._batches.start_tick))
        return name

    async def _drop(self, log: Client, group: str) -> None:
        """Also when the server has not heard yet that the member has left."""
        while True:
            try:
                await log.group(group).drop(VCHANNEL)
            except ResourceAcquired:
                await asyncio.sleep(LEAVE_PAUSE_S)
            else:
                return
