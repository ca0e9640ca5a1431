"""A thousand consumers with nothing to read: the broker stays small, and still answers."""

import logging
from pathlib import Path

import anyio

from broker.client import Client, Scanner, connect
from broker.core.naming import pchannel_names
from tests.broker_process import BrokerProcess

CONSUMERS = 1000
CONNECTIONS = 4
RESIDENT_BYTES_MAX = 200_000_000
APPENDS = 50
DEADLINE_S = 120.0  # a guard against hanging, wide enough for a machine that does other things too

told = logging.getLogger("tests.limits")


async def test_a_thousand_idle_consumers_leave_the_broker_small_and_answering(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        empty_bytes = broker.resident_bytes()
        async with anyio.create_task_group() as consumers:
            with anyio.fail_after(DEADLINE_S):
                for connection in range(CONNECTIONS):
                    await consumers.start(consume_idly, broker.address, connection)
            async with connect(broker.address) as log:
                assert await scanners(log) == CONSUMERS
                began_s, cpu_s = anyio.current_time(), broker.cpu_s()
                slowest_s = await append_meanwhile(log)
                took_s, cpu_s = anyio.current_time() - began_s, broker.cpu_s() - cpu_s
            full_bytes = broker.resident_bytes()
            consumers.cancel_scope.cancel()
        told.info(
            "%d idle consumers: %.0f MB resident, %.0f without them; %.0f %% of one processor;"
            " slowest of %d appends in %.1f s took %.0f ms",
            *(CONSUMERS, full_bytes / 1e6, empty_bytes / 1e6, 100 * cpu_s / took_s),
            *(APPENDS, took_s, slowest_s * 1e3),
        )
        assert full_bytes < RESIDENT_BYTES_MAX
        assert broker.terminate() == 0


async def consume_idly(
    address: str, connection: int, *, task_status: anyio.abc.TaskStatus[None]
) -> None:
    """One connection with its share of the consumers, on all pchannels; it takes what comes."""
    names = pchannel_names("by-dev", 16)
    share = CONSUMERS // CONNECTIONS
    told_ticks: list[anyio.Event] = []
    async with connect(address) as log, anyio.create_task_group() as reading:
        for number in range(share):
            vchannel = f"{names[number % len(names)]}_{connection}v{number}"
            reader = log.read(vchannel, start="latest", with_ticks=True)
            told_ticks.append(anyio.Event())
            reading.start_soon(read_for_ever, reader, told_ticks[-1])
        for told_tick in told_ticks:
            await told_tick.wait()
        task_status.started()


async def read_for_ever(reader: Scanner, told_tick: anyio.Event) -> None:
    """A time tick has come: the broker has a Scanner for this reader."""
    async for _ in reader:
        told_tick.set()


async def scanners(log: Client) -> int:
    return sum(
        actor.kind == "actor" and "/scanners/" in actor.path and actor.state == "running"
        for actor in await log.actors()
    )


async def append_meanwhile(log: Client) -> float:
    """The slowest of some appends, one after the other, to channels that nobody reads."""
    slowest_s = 0.0
    names = pchannel_names("by-dev", 16)
    for number in range(APPENDS):
        began_s = anyio.current_time()
        await log.append(f"{names[number % 16]}_99v0", bytes(1000), deadline_s=DEADLINE_S)
        slowest_s = max(slowest_s, anyio.current_time() - began_s)
    return slowest_s
