"""Several hosts: each process has a data folder of its own, and shares only etcd and Kafka."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from benchmark.baselines.kafka_server import KafkaNode

from broker.client import connect
from tests.broker.app.switching.switch_programs import until
from tests.broker_process import BrokerProcess, failed_start
from tests.hosts_processes import Hosts, health, running
from tests.kafka_node import kafka_node, new_place
from tests.local_etcd import EtcdServer
from tests.roles_processes import GUARD_S, RoleProcess

__all__ = ["kafka_node"]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


async def test_coordinators_on_two_hosts_follow_each_other(
    etcd: EtcdServer, kafka_node: KafkaNode, tmp_path: Path
) -> None:
    hosts = Hosts(tmp_path, etcd, new_place(kafka_node).shown)
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


async def test_a_broker_of_one_host_becomes_a_cluster_of_hosts_and_keeps_all(
    etcd: EtcdServer, kafka_node: KafkaNode, tmp_path: Path
) -> None:
    """In the order of broker/cli/README.md, "From one host to three"."""
    hosts = Hosts(tmp_path, etcd, new_place(kafka_node).shown)
    founding = tmp_path / "coordinator0"
    with BrokerProcess(founding, pchannels="2") as broker:
        async with connect(broker.address) as log:
            await log.collections.create("trains", shards=2)
            landed = [await log.append("trains", b"%d" % it, key=b"%d" % it) for it in range(10)]
            await log.admin.alter_wal(hosts.wal)
            status = await until(log, ("done", "aborted"))
            assert (status.stage, status.place) == ("done", hosts.wal)
        assert broker.terminate() == 0
    copied = RoleProcess("meta", "copy", "--data-dir", str(founding), "--meta", hosts.meta)
    with copied, anyio.fail_after(GUARD_S):
        assert await anyio.to_thread.run_sync(copied.process.wait) == 0
    async with running(hosts) as (leader, other, log):
        landed += [await log.append("trains", b"%d" % it, key=b"%d" % it) for it in range(10, 20)]
        os.kill(leader.pid, signal.SIGKILL)
        assert "tidemark ready" in await other.first_line()
        landed += [await log.append("trains", b"%d" % it, key=b"%d" % it) for it in range(20, 30)]
        found = []
        async for batch in log.read("trains", start="all", until="now"):
            found += [(it.vchannel, it.id, int(it.payload)) for it in batch.messages]
        assert sorted(found) == sorted((it.vchannel, it.id, n) for n, it in enumerate(landed))
