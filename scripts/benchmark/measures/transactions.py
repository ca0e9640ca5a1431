"""Measures native batches of one size, without transactions, with some, and with nothing else."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from benchmark.baselines.disk import BODY
from benchmark.results.figures import RATE
from broker.client import Client, Message, connect
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

    async def each(self, size: int, messages: int) -> dict[str, float]:
        """Append nothing but transactions of one batch, by `Client.txn`, as many at once."""
        return await self._all(size, messages, partial(_in_a_txn, payloads=[BODY] * size))

    async def each_of_messages(self, size: int, messages: int) -> dict[str, float]:
        """Append nothing but transactions of single messages, by `append_messages`."""
        return await self._all(size, messages, partial(_together, bodies=[Message(BODY)] * size))

    async def _all(
        self, size: int, messages: int, append: Callable[[Client], Awaitable[None]]
    ) -> dict[str, float]:
        batches = messages // size
        turns = iter(range(batches))
        async with connect(self._address) as log:
            await log.append(VCHANNEL, BODY)
            started = time.perf_counter()

            async def work() -> None:
                for _ in turns:
                    await append(log)

            async with asyncio.TaskGroup() as tasks:
                for _ in range(BATCHES_IN_FLIGHT):
                    tasks.create_task(work())
            sent = batches * size
            return {RATE: sent / (time.perf_counter() - started), "messages": sent}

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
    await _in_a_txn(log, payloads)
    room.release()


async def _in_a_txn(log: Client, payloads: list[bytes]) -> None:
    async with log.txn(VCHANNEL) as txn:
        await txn.append_batch(payloads)


async def _together(log: Client, bodies: list[Message]) -> None:
    await log.append_messages(VCHANNEL, bodies)
