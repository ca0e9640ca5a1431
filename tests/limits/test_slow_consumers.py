"""Consumers that stop reading: they hold a credit's worth of memory, and hold up nobody."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from broker.client import Client, Scanner, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names
from tests.broker_process import FreshBrokerProcess

MIB = 1024 * 1024
STOPPED = 20
MESSAGE_BYTES = 32 * 1024
WAVE = 1024
"""Messages of one wave: 32 MiB, far more than the tail below and the windows hold."""

CREDIT_BYTES = MIB
TAIL_BYTES = 8 * MIB
GROWTH_BYTES_MAX = STOPPED * CREDIT_BYTES + TAIL_BYTES + 40 * MIB
"""Every credit, the tail, and what the allocator keeps of one wave in flight."""

DEADLINE_S = 60.0
(PCHANNEL,) = pchannel_names("by-dev", 1)
VCHANNEL = NewVChannel(f"{PCHANNEL}_1v0")

told = logging.getLogger("tests.limits")


async def test_consumers_that_stop_reading_hold_little_and_delay_nobody(tmp_path: Path) -> None:
    limits = {
        "pchannels": "1",
        "consume_credit_bytes": str(CREDIT_BYTES),
        "tail_bytes_max": str(TAIL_BYTES),
    }
    with FreshBrokerProcess(tmp_path / "data", **limits) as broker:
        async with connect(broker.address) as log, log.read(VCHANNEL) as healthy:
            alone_s = await wave(log, healthy)
            alone_bytes = broker.resident_bytes()
            async with stopped_readers(broker.address) as stopped:
                crowded_s = [await wave(log, healthy) for _ in range(3)]
                grown_bytes = broker.resident_bytes() - alone_bytes
                told.info(
                    "32 MiB written and read in %.2f s alone, in %s s beside %d stopped consumers;"
                    " the broker grew from %.0f MB by %.0f MB",
                    *(alone_s, " ".join(f"{it:.2f}" for it in crowded_s), STOPPED),
                    *(alone_bytes / 1e6, grown_bytes / 1e6),
                )
                assert grown_bytes < GROWTH_BYTES_MAX
                await goes_on_where_it_stopped(stopped[0], 4 * WAVE)
        assert broker.terminate() == 0


async def wave(log: Client, reader: Scanner) -> float:
    """Seconds until so many messages were appended, and read by somebody who does read."""
    began_s = anyio.current_time()
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as both:
            both.start_soon(append_wave, log)
            both.start_soon(take, reader, WAVE)
    return anyio.current_time() - began_s


async def append_wave(log: Client) -> None:
    async with anyio.create_task_group() as appends:
        for _ in range(WAVE):
            # All of them at once: the last one waits for the whole wave.
            append = partial(log.append, VCHANNEL, bytes(MESSAGE_BYTES), deadline_s=DEADLINE_S)
            appends.start_soon(append)


async def take(reader: Scanner, count: int) -> None:
    while count > 0:
        count -= len((await anext(reader)).messages)
    assert count == 0


@asynccontextmanager
async def stopped_readers(address: str) -> AsyncIterator[list[Scanner]]:
    """Each on a connection of its own; each is open, and nobody takes anything from it."""
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(STOPPED):
            log = await stack.enter_async_context(connect(address))
            reader = await stack.enter_async_context(log.read(VCHANNEL))
            readers.append(reader)
        yield readers


async def goes_on_where_it_stopped(reader: Scanner, count: int) -> None:
    ids: list[int] = []
    with anyio.fail_after(DEADLINE_S):
        async for message in reader.messages():
            ids.append(message.id)
            if len(ids) == count:
                break
    assert ids == sorted(set(ids))
