"""A loaded broker takes little more than its tails, whatever shape the appends have."""

import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from broker.client import Client, Message, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names
from tests.broker_process import FreshBrokerProcess

MIB = 1024 * 1024
TAILS_BYTES = 32 * MIB
BODY = random.Random(5).randbytes(1000)
BATCHES = 100
"""Of 1,000 messages: 100 MB in each vchannel, three times what all tails may hold."""

TASKS, TIMES = 256, 100
PRODUCED, IN_FLIGHT = 25_000, 500
SINGLE = Message(BODY, version=2)
"""What cannot go into a batch, so it goes through Milvus's Produce."""

GROWTH_BYTES_MAX = TAILS_BYTES + 64 * MIB
"""The tails, what is in flight, and what the allocator keeps of both."""

SHAPE_S_MAX = 120.0
SAMPLE_S = 0.05

told = logging.getLogger("tests.limits")
FIRST, SECOND = [NewVChannel(f"{it}_1v0") for it in pchannel_names("by-dev", 2)]


async def test_a_loaded_broker_takes_little_more_than_its_tails(tmp_path: Path) -> None:
    limits = {"pchannels": "2", "tail_total_bytes_max": str(TAILS_BYTES)}
    with FreshBrokerProcess(tmp_path / "data", **limits) as broker:
        empty_bytes = broker.resident_bytes()
        async with connect(broker.address) as log:
            for shape in (large_batches, many_tasks, produce, large_batches):
                async with highest(broker.resident_bytes) as seen:
                    await within(shape, log)
                told.info("%s: %.0f MB at most", shape.__name__, seen[0] / 1e6)
                assert seen[0] - empty_bytes < GROWTH_BYTES_MAX, shape.__name__
        assert broker.terminate() == 0


async def within(shape: Callable[[Client], Awaitable[None]], log: Client) -> None:
    with anyio.fail_after(SHAPE_S_MAX):
        await shape(log)


async def large_batches(log: Client) -> None:
    """Two in flight on each of two pchannels."""

    async def some(target: NewVChannel) -> None:
        for _ in range(BATCHES // 2):
            await log.append_batch(target, [BODY] * 1000)

    async with anyio.create_task_group() as group:
        for target in (FIRST, SECOND) * 2:
            group.start_soon(some, target)


async def many_tasks(log: Client) -> None:
    async def one_by_one() -> None:
        for _ in range(TIMES):
            await log.append(FIRST, BODY)

    async with anyio.create_task_group() as group:
        for _ in range(TASKS):
            group.start_soon(one_by_one)


async def produce(log: Client) -> None:
    for _ in range(PRODUCED // IN_FLIGHT):
        await log.append_messages(SECOND, [SINGLE] * IN_FLIGHT, atomic=False)


@asynccontextmanager
async def highest(now: Callable[[], int]) -> AsyncIterator[list[int]]:
    """The largest value of `now` while the block runs, the one at its end included."""
    seen = [now()]

    async def watch() -> None:
        while True:
            seen[0] = max(seen[0], now())
            await anyio.sleep(SAMPLE_S)

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        yield seen
        group.cancel_scope.cancel()
    seen[0] = max(seen[0], now())
