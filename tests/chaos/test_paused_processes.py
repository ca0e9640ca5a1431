"""A process that is paused (SIGSTOP), and whose work another one has: its clients do not wait."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from broker.client import Client, Deadlines, connect
from tests.chaos.test_standby import Coordinators, node
from tests.roles_processes import GUARD_S, RoleProcess, owners, until

PATIENT = Deadlines(connect_s=GUARD_S)


@dataclass(frozen=True)
class Cluster:
    """Two coordinators in order, and two nodes that each serve one channel."""

    coordinators: Coordinators
    nodes: dict[int, RoleProcess]
    log: Client
    vchannels: tuple[str, ...]


async def are_on(log: Client, *nodes: int) -> bool:
    found = await owners(log)
    return len(found) == 2 and set(found.values()) == set(nodes)


@asynccontextmanager
async def cluster(data: Path) -> AsyncIterator[Cluster]:
    found = Coordinators(data)
    nodes: dict[int, RoleProcess] = {}
    async with AsyncExitStack() as running:
        running.callback(found.end)
        await found.start_in_order()
        for number in (1, 2):
            nodes[number] = running.enter_context(node(number, data, found.servers))
            await nodes[number].ready()
        log = await running.enter_async_context(connect(found.servers))
        vchannels = (await log.collections.create("rows", shards=2)).vchannels
        await until(lambda: are_on(log, 1, 2))
        for vchannel in vchannels:
            await log.append(vchannel, b"0", deadline_s=GUARD_S)
        yield Cluster(found, nodes, log, tuple(vchannels))


async def test_a_question_does_not_wait_for_a_paused_node(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        os.kill(it.nodes[1].pid, signal.SIGSTOP)
        found = await it.log.offsets.describe(it.vchannels)  # with the deadline of every call
        assert set(found) == set(it.vchannels)


async def test_appends_do_not_wait_for_a_paused_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        servers = it.coordinators
        os.kill(servers.processes[servers.addresses[0]].pid, signal.SIGSTOP)
        standby_first = ",".join(reversed(servers.addresses))
        async with connect(standby_first, deadlines=PATIENT) as other:
            await until(lambda: are_on(other, 1, 2))
            it.nodes[1].process.kill()
            await until(lambda: are_on(other, 2))
        with anyio.fail_after(GUARD_S):
            for vchannel in it.vchannels:
                await it.log.append(vchannel, b"2")  # with the default deadline
