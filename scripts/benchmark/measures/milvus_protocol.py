"""Measures Milvus's Produce and Consume on Tidemark: one message per gRPC frame."""

import asyncio
import time

from benchmark.baselines.disk import BODY
from benchmark.results.figures import RATE
from broker.client import Client, Deadlines, Message, Tls, connect
from broker.client.cluster.targets import NewVChannel

IN_FLIGHT = 1000
TXN_SHARE = 10
"""One message in so many is of a transaction, where some are."""
TXN_BODIES_IN_FLIGHT = 200
SINGLE = Message(BODY, version=2)
"""What the client cannot put into a batch, so it goes through Produce, as all of a transaction."""
VCHANNEL = NewVChannel("by-dev-rootcoord-dml_1_1v0")
DEADLINES = Deadlines(append_s=60.0)
"""A machine that stands still shows in the rate; it does not end the measurement."""


class MilvusProtocol:
    """Produces to one server and consumes from it, with the Python client."""

    def __init__(self, address: str, tls: Tls | None = None) -> None:
        self._address, self._tls = address, tls
        self._start, self._held = 1, 0

    async def append(self, messages: int) -> dict[str, float]:
        """Append with two calls of 500 messages in flight."""
        half = [SINGLE] * (IN_FLIGHT // 2)
        async with connect(self._address, tls=self._tls, deadlines=DEADLINES) as log:
            await log.append(VCHANNEL, BODY)
            self._start = (await log.offsets.describe([VCHANNEL]))[VCHANNEL].next_id
            started = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(2):
                    group.create_task(_send(log, half, messages // 2))
            sent = messages // 2 // len(half) * len(half) * 2
            self._held = sent
            return {RATE: sent / (time.perf_counter() - started), "messages": sent}

    async def append_mixed(self, size: int, messages: int) -> dict[str, float]:
        """As `append`, but one message in ten is in a transaction of `size` messages."""
        bodies = [SINGLE] * size
        chunk = IN_FLIGHT // 2
        async with connect(self._address, tls=self._tls, deadlines=DEADLINES) as log:
            await log.append(VCHANNEL, BODY)
            started = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                room = asyncio.Semaphore(max(1, TXN_BODIES_IN_FLIGHT // size))
                for _ in range(2):
                    group.create_task(_send_mixed(log, bodies, messages // 2, (group, room)))
            sent = messages // 2 // chunk * chunk * 2
            return {RATE: sent / (time.perf_counter() - started), "messages": sent}

    async def read(self, messages: int) -> dict[str, float]:
        """Read back everything that `append` wrote, one message after the other."""
        if self._held < messages:
            await self.append(messages)
        seen = 0
        async with connect(self._address, tls=self._tls, deadlines=DEADLINES) as log:
            started = time.perf_counter()
            async for batch in log.read_range(VCHANNEL, self._start, self._start + self._held):
                seen += len(batch.messages)
            return {RATE: seen / (time.perf_counter() - started), "messages": seen}


async def _send(log: Client, chunk: list[Message], messages: int) -> None:
    for _ in range(messages // len(chunk)):
        await log.append_messages(VCHANNEL, chunk, atomic=False)


async def _send_mixed(
    log: Client,
    bodies: list[Message],
    messages: int,
    beside: tuple[asyncio.TaskGroup, asyncio.Semaphore],
) -> None:
    group, room = beside
    chunk = IN_FLIGHT // 2
    in_txns = chunk // TXN_SHARE
    plain, owed = [SINGLE] * (chunk - in_txns), 0
    for _ in range(messages // chunk):
        owed += in_txns
        while owed >= len(bodies):
            owed -= len(bodies)
            await room.acquire()
            group.create_task(_transact(log, bodies, room))
        await log.append_messages(VCHANNEL, plain, atomic=False)


async def _transact(log: Client, bodies: list[Message], room: asyncio.Semaphore) -> None:
    await log.append_messages(VCHANNEL, bodies)
    room.release()
