"""Measures native batches of one size, without transactions and with some among them."""

import asyncio
import time

from benchmark.disk import BODY
from benchmark.figures import RATE
from broker.client import Client, connect
from broker.client.cluster.targets import NewVChannel

VCHANNEL = NewVChannel("by-dev-rootcoord-dml_1_4v0")
BATCHES_IN_FLIGHT = 32
TXNS_IN_FLIGHT = 64
TXN_SHARE = 10
"""One batch in so many is a transaction, where some are."""


class Transactions:
    """Appends to one server with the Python client."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def plain(self, size: int, messages: int) -> dict[str, float]:
        """Append from tasks that each have one batch of this size in flight."""
        return await self._run(size, messages, txns=False)

    async def mixed(self, size: int, messages: int) -> dict[str, float]:
        """The same, but one batch in ten is a transaction of its own."""
        return await self._run(size, messages, txns=True)

    async def _run(self, size: int, messages: int, *, txns: bool) -> dict[str, float]:
        batches = messages // size
        turns = iter(range(batches))
        payloads = [BODY] * size
        room = asyncio.Semaphore(TXNS_IN_FLIGHT)
        async with connect(self._address) as log:
            await log.append(VCHANNEL, BODY)
            started = time.perf_counter()
            async with asyncio.TaskGroup() as beside:

                async def work() -> None:
                    for turn in turns:
                        if txns and turn % TXN_SHARE == 0:
                            await room.acquire()
                            beside.create_task(_transact(log, payloads, room))
                        else:
                            await log.append_batch(VCHANNEL, payloads)

                for _ in range(BATCHES_IN_FLIGHT):
                    beside.create_task(work())
            sent = batches * size
            return {RATE: sent / (time.perf_counter() - started), "messages": sent}


async def _transact(log: Client, payloads: list[bytes], room: asyncio.Semaphore) -> None:
    async with log.txn(VCHANNEL) as txn:
        await txn.append_batch(payloads)
    room.release()
