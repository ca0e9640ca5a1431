"""A thousand consumers with nothing to read: the broker stays small, and still answers."""

import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from broker.client import Client, Deadlines, connect
from broker.client.cluster.targets import NewVChannel
from broker.core.naming import pchannel_names
from tests.broker_process import FreshBrokerProcess

PROGRAM = Path(__file__).with_name("idle_consumers.py").read_text()
CONSUMERS = 1000
CONNECTIONS = 4
RESIDENT_BYTES_MAX = 200_000_000
APPENDS = 16
DEADLINE_S = 900.0  # a guard against hanging: on a busy machine the ticks take what joins need
PATIENT = Deadlines(connect_s=DEADLINE_S, open_s=DEADLINE_S, call_s=DEADLINE_S)
"""A broker with a thousand readers answers on a busy machine, but not within a few seconds."""

told = logging.getLogger("tests.limits")


async def test_a_thousand_idle_consumers_leave_the_broker_small_and_answering(
    tmp_path: Path,
) -> None:
    with FreshBrokerProcess(tmp_path / "data", pchannels="16") as broker:
        empty_bytes = broker.resident_bytes()
        async with (
            idle_consumers(broker.address),
            connect(broker.address, deadlines=PATIENT) as log,
        ):
            assert await scanners(log) == CONSUMERS
            began_s, cpu_s = anyio.current_time(), broker.cpu_s()
            slowest_s = await append_meanwhile(log)
            took_s, cpu_s = anyio.current_time() - began_s, broker.cpu_s() - cpu_s
            assert await scanners(log) == CONSUMERS
            full_bytes = broker.resident_bytes()
        told.info(
            "%d idle consumers: %.0f MB resident, %.0f without them; %.0f %% of one processor;"
            " slowest of %d appends in %.1f s took %.0f ms",
            *(CONSUMERS, full_bytes / 1e6, empty_bytes / 1e6, 100 * cpu_s / took_s),
            *(APPENDS, took_s, slowest_s * 1e3),
        )
        assert full_bytes < RESIDENT_BYTES_MAX
        assert broker.terminate() == 0


@asynccontextmanager
async def idle_consumers(address: str) -> AsyncIterator[None]:
    """They all read inside, and none of them has failed by its end."""
    # As a text, not as a file, so that it imports the broker from where this process does.
    command = [sys.executable, "-c", PROGRAM, address, str(CONSUMERS), str(CONNECTIONS)]
    async with await anyio.open_process(
        command, stdin=subprocess.DEVNULL, stderr=sys.stderr
    ) as program:
        assert program.stdout is not None
        with anyio.fail_after(DEADLINE_S):
            assert await program.stdout.receive() == b"reading\n"
        yield
        program.terminate()
        with anyio.fail_after(DEADLINE_S):
            assert await program.wait() == -signal.SIGTERM


async def scanners(log: Client) -> int:
    return sum(
        actor.kind == "actor" and "/scanners/" in actor.path and actor.state == "running"
        for actor in await log.admin.actors()
    )


async def append_meanwhile(log: Client) -> float:
    """The slowest of some appends, one after the other, to channels that nobody reads."""
    slowest_s = 0.0
    names = pchannel_names("by-dev", 16)
    for number in range(APPENDS):
        began_s = anyio.current_time()
        vchannel = NewVChannel(f"{names[number % 16]}_99v0")
        await log.append(vchannel, bytes(1000), deadline_s=DEADLINE_S)
        slowest_s = max(slowest_s, anyio.current_time() - began_s)
    return slowest_s
