"""Several hosts: each process has a data folder of its own, and shares only etcd and Kafka."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from benchmark.baselines.kafka_server import KafkaNode

from broker.client import Client, Deadlines, connect
from broker.client.cluster import Health
from broker.client.errors import TidemarkError
from tests.broker_process import failed_start, free_port
from tests.kafka_node import kafka_node, new_place
from tests.local_etcd import EtcdServer
from tests.roles_processes import GUARD_S, RoleProcess

__all__ = ["kafka_node"]

PATIENT = Deadlines(connect_s=GUARD_S)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


class Hosts:
    """Two coordinators and nodes; each is one host's."""

    def __init__(self, root: Path, etcd: EtcdServer, kafka: KafkaNode, **settings: str) -> None:
        self.root = root
        self.meta = f"etcd://{etcd.address}/{root.name}"
        self.wal = f"{new_place(kafka).shown}?replication=1&sync=replicas"
        self.settings = {"pchannels": "2", "leader_lease_s": "4", **settings}
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.processes: list[RoleProcess] = []

    @property
    def servers(self) -> str:
        return ",".join(self.addresses)

    def _start(self, role: str, folder: str, *options: str) -> RoleProcess:
        given = ("--data-dir", str(self.root / folder), "--meta", self.meta, "--wal", self.wal)
        self.processes.append(RoleProcess(role, *given, *options, **self.settings))
        return self.processes[-1]

    def coordinator(self, number: int) -> RoleProcess:
        return self._start(
            "coordinator", f"coordinator{number}", "--listen", self.addresses[number]
        )

    def node(self, number: int) -> RoleProcess:
        options = ("--node-id", str(number), "--coordinator", self.servers)
        return self._start("node", f"node{number}", *options, "--listen", "127.0.0.1:0")

    def end(self) -> None:
        for process in reversed(self.processes):
            process.__exit__()


@asynccontextmanager
async def running(hosts: Hosts) -> AsyncIterator[tuple[RoleProcess, RoleProcess, Client]]:
    """The leader, the other one, and a client; two nodes serve."""
    async with AsyncExitStack() as ends:
        ends.callback(hosts.end)
        leader = hosts.coordinator(0)
        await leader.ready()
        other = hosts.coordinator(1)
        await other.stands_by()
        for number in (1, 2):
            await hosts.node(number).ready()
        log = await ends.enter_async_context(connect(hosts.servers, deadlines=PATIENT))
        yield leader, other, log


async def health(log: Client) -> Health:
    with anyio.fail_after(GUARD_S):
        while True:
            try:
                return await log.admin.health()
            except TidemarkError:
                await anyio.sleep(0.05)


async def test_coordinators_on_two_hosts_follow_each_other(
    etcd: EtcdServer, kafka_node: KafkaNode, tmp_path: Path
) -> None:
    hosts = Hosts(tmp_path, etcd, kafka_node)
    async with running(hosts) as (leader, other, log):
        await log.collections.create("trains", shards=2)
        landed = [await log.append("trains", b"%d" % it, key=b"%d" % it) for it in range(10)]
        assert (await health(log)).leader == hosts.addresses[0]

        await leader.stopped_by(signal.SIGTERM)
        assert "tidemark ready" in await other.first_line()
        assert (await health(log)).leader == hosts.addresses[1]
        landed += [await log.append("trains", b"%d" % it, key=b"%d" % it) for it in range(10, 20)]

        back = hosts.coordinator(0)
        await back.stands_by()
        os.kill(other.pid, signal.SIGKILL)
        assert "tidemark ready" in await back.first_line()
        landed += [await log.append("trains", b"%d" % it, key=b"%d" % it) for it in range(20, 30)]
        found = []
        async for batch in log.read("trains", start="all", until="now"):
            found += [(it.vchannel, it.id, int(it.payload)) for it in batch.messages]
        assert sorted(found) == sorted((it.vchannel, it.id, n) for n, it in enumerate(landed))
        # Nobody else may use the prefix meanwhile, nor take the cluster for itself.
        told = failed_start(tmp_path / "x", meta=hosts.meta, pchannels="2")
        assert "is the metadata of a broker with another data folder" in told
        folder = str(tmp_path / "coordinator1")
        told = failed_start(Path(folder), meta=hosts.meta, wal=hosts.wal, pchannels="2")
        assert "is one of several of its cluster" in told
