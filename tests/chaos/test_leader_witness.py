"""A leader with a data folder of its own that is killed: its witness tells the other hosts.

The lease of the leader is longer than a test waits, except where it has to decide.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest
from benchmark.baselines.kafka_server import KafkaNode

from broker.etcd.last_write import MODULE
from tests.hosts_processes import Hosts, health, running
from tests.kafka_node import kafka_node, new_place
from tests.local_etcd import EtcdServer
from tests.roles_processes import GUARD_S, RoleProcess, until

__all__ = ["kafka_node"]

LONG_S = str(3 * GUARD_S)
NO_KAFKA = "kafka://127.0.0.1:1/none"
"""Coordinators alone read no log."""


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


async def witness_of(leader: RoleProcess) -> psutil.Process:
    found: list[psutil.Process] = []

    async def waits() -> bool:
        children = psutil.Process(leader.pid).children()
        found[:] = [it for it in children if MODULE in it.cmdline()]
        return bool(found)

    await until(waits)
    return found[0]


async def until_gone(witness: psutil.Process) -> None:
    async def gone() -> bool:
        return not witness.is_running() or witness.status() == psutil.STATUS_ZOMBIE

    await until(gone)


async def two(hosts: Hosts, ends: AsyncExitStack) -> tuple[RoleProcess, RoleProcess]:
    """The leader, and one that stands by."""
    ends.callback(hosts.end)
    leader = hosts.coordinator(0)
    await leader.ready()
    other = hosts.coordinator(1)
    await other.stands_by()
    return leader, other


async def test_appends_go_on_long_before_the_lease_of_a_killed_leader_ends(
    etcd: EtcdServer, kafka_node: KafkaNode, tmp_path: Path
) -> None:
    hosts = Hosts(tmp_path, etcd, new_place(kafka_node).shown, leader_lease_s=LONG_S)
    async with running(hosts) as (first, second, log):
        leader, other = first, second
        await log.collections.create("trains", shards=2)
        landed = [await log.append("trains", b"%d" % it, key=b"%d" % it) for it in range(10)]
        for number in (1, 0):
            witness = await witness_of(leader)
            os.kill(leader.pid, signal.SIGKILL)
            assert "tidemark ready" in await other.first_line()
            await until_gone(witness)
            assert (await health(log)).leader == hosts.addresses[number]
            key = b"after %d" % number
            landed.append(await log.append("trains", key, key=key, deadline_s=GUARD_S))
            leader, other = other, hosts.coordinator(1 - number)
            await other.stands_by()
        found = []
        async for batch in log.read("trains", start="all", until="now"):
            found += [(it.vchannel, it.id) for it in batch.messages]
        assert sorted(found) == sorted((it.vchannel, it.id) for it in landed)


async def test_a_leader_that_stops_in_order_takes_its_witness_along(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as ends:
        hosts = Hosts(tmp_path, etcd, NO_KAFKA, leader_lease_s=LONG_S)
        leader, other = await two(hosts, ends)
        witness = await witness_of(leader)
        said = await leader.stopped_by(signal.SIGTERM)
        assert not witness.is_running()
        assert "has ended" not in said
        assert "tidemark ready" in await other.first_line()


async def test_without_its_witness_the_lease_of_a_killed_leader_decides(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as ends:
        hosts = Hosts(tmp_path, etcd, NO_KAFKA, leader_lease_s="4")
        leader, other = await two(hosts, ends)
        witness = await witness_of(leader)
        os.kill(leader.pid, signal.SIGSTOP)  # it would start another one
        witness.kill()
        os.kill(leader.pid, signal.SIGKILL)
        assert "tidemark ready" in await other.first_line()
        assert leader.process.stderr is not None
        assert "has ended" not in leader.process.stderr.read()


@pytest.mark.parametrize("frozen", [True, False])
async def test_a_witness_waits_for_an_etcd_that_is_away(
    etcd: EtcdServer, tmp_path: Path, frozen: bool
) -> None:
    async with AsyncExitStack() as ends:
        hosts = Hosts(tmp_path, etcd, NO_KAFKA, leader_lease_s=LONG_S)
        leader, other = await two(hosts, ends)
        witness = await witness_of(leader)
        if frozen:
            etcd.send(signal.SIGSTOP)
        else:
            etcd.kill()
        os.kill(leader.pid, signal.SIGKILL)
        if frozen:

            async def calls() -> bool:
                return any(it.raddr for it in witness.net_connections())

            await until(calls)
            etcd.send(signal.SIGCONT)
        else:
            etcd.start().wait()
        assert "tidemark ready" in await other.first_line()
        await until_gone(witness)


async def test_a_leader_that_is_only_paused_keeps_the_lead_until_its_lease_ends(
    etcd: EtcdServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as ends:
        hosts = Hosts(tmp_path, etcd, NO_KAFKA, leader_lease_s="4")
        leader, other = await two(hosts, ends)
        witness = await witness_of(leader)
        os.kill(leader.pid, signal.SIGSTOP)
        assert "tidemark ready" in await other.first_line()
        assert witness.is_running(), "it waits for the end of the process"
        os.kill(leader.pid, signal.SIGKILL)
        await until_gone(witness)
        assert leader.process.stderr is not None
        assert "has ended" not in leader.process.stderr.read(), "a later leader is left alone"
        assert other.process.poll() is None
