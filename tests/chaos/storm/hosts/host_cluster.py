"""Three Kafka nodes, three etcd members, coordinators and nodes, each on a host of its own."""

from contextlib import ExitStack
from pathlib import Path
from typing import cast

import anyio
from anyio.abc import TaskGroup
from benchmark.baselines.kafka_server import KafkaSeat
from hosts.host_network import HostNetwork, host_network
from hosts.host_processes import (
    CLIENT_PORT,
    EtcdOnHost,
    HostProcess,
    KafkaOnHost,
)

from tests.chaos.storm.cluster import (
    COORDINATOR,
    OFTEN,
    SEGMENT_BYTES,
    STAGE_IDLE_MS,
    WATCH_S,
    Cluster,
    Member,
)
from tests.chaos.storm.run import Options
from tests.kafka_node import kafka_cluster
from tests.local_etcd import etcd_command

COORDINATORS = 2
"""One leads, the other one stands by."""
QUORUM = 3
PORT, KAFKA_PORT, KAFKA_CONTROLLER = 7100, 9092, 9093


class Door:
    """Where clients connect."""

    def __init__(self, address: str) -> None:
        self.address = address


class HostCluster(Cluster):
    """As a cluster on one machine, but for its links: its network has the faults."""

    def __init__(self, options: Options, folder: Path) -> None:
        self._options, self._folder = options, folder
        self._stack = ExitStack()
        self.kafkas = [f"k{number}" for number in range(1, QUORUM + 1)]
        self.etcds = [f"e{number}" for number in range(1, QUORUM + 1)]
        self.coordinator_hosts = [f"c{number}" for number in range(1, COORDINATORS + 1)]
        self.node_hosts = [f"n{number}" for number in range(1, options.nodes + 1)]
        names = [*self.kafkas, *self.etcds, *self.coordinator_hosts, *self.node_hosts]
        self.network: HostNetwork = self._stack.enter_context(host_network(names, options.seed))
        self.others: dict[str, HostProcess] = {}
        data = self._settings()
        served = ",".join([f"{self._ip(it)}:{PORT}" for it in self.coordinator_hosts])
        self.client_links = [Door(served), Door(served)]  # type: ignore[list-item]
        self.coordinators = [
            self._member(f"{COORDINATOR}-{host}", COORDINATOR, host, data | OFTEN)
            for host in self.coordinator_hosts
        ]
        self.coordinator = self.coordinators[0]
        self.nodes = [
            self._member(f"node-{number}", "node", host, data | _of_node(number, served))
            for number, host in enumerate(self.node_hosts, 1)
        ]

    @property
    def members(self) -> list[Member]:
        return cast("list[Member]", [*self.coordinators, *self.nodes, *self.others.values()])

    def process_on(self, host: str) -> HostProcess:
        """The one process of a host."""
        if host in self.others:
            return self.others[host]
        hosts = [*self.coordinator_hosts, *self.node_hosts]
        return cast("HostProcess", [*self.coordinators, *self.nodes][hosts.index(host)])

    async def start(self, tasks: TaskGroup) -> None:
        await anyio.to_thread.run_sync(self._start_others)
        for member in [*self.coordinators, *self.nodes]:
            member.start()
        tasks.start_soon(self._watch)

    def end(self) -> None:
        for member in self.members:
            member.end()
        self._stack.close()

    def _start_others(self) -> None:
        hosts = [(name, self.network.hosts[name]) for name in self.etcds]
        for name in self.etcds:
            self.others[name] = EtcdOnHost(name, hosts, self._folder, etcd_command())
            self.others[name].start()
        seats = [
            KafkaSeat(
                host=self._ip(name), port=KAFKA_PORT, controller=KAFKA_CONTROLLER,
                inside=self.network.hosts[name].inside,
            )
            for name in self.kafkas
        ]  # fmt: skip
        nodes = self._stack.enter_context(kafka_cluster(self._folder, seats))
        for name, node in zip(self.kafkas, nodes, strict=True):
            self.others[name] = KafkaOnHost(name, node)

    def _member(self, name: str, role: str, host: str, settings: dict[str, str]) -> Member:
        place = self._folder / f"data-{host}"
        place.mkdir(parents=True, exist_ok=True)
        own = {"data_dir": str(place / "data"), "listen": f"{self._ip(host)}:{PORT}"}
        inside = self.network.hosts[host].inside
        return Member(name, role, settings | own, self._options.sabotage, inside)

    def _settings(self) -> dict[str, str]:
        kafka = ",".join([f"{self._ip(it)}:{KAFKA_PORT}" for it in self.kafkas])
        etcd = ",".join([f"{self._ip(it)}:{CLIENT_PORT}" for it in self.etcds])
        return {
            "wal": f"kafka://{kafka}/storm?replication={QUORUM}&min_isr=2",
            "meta": f"etcd://{etcd}/storm",
            "pchannels": str(self._options.pchannels),
            "insecure": "true",
            "allow_chaos": "true",
            "log_level": "warning",
            "segment_bytes": str(SEGMENT_BYTES),
            "stage_idle_ms": str(STAGE_IDLE_MS),
            "retention_check_s": "0.5",
        }

    def _ip(self, host: str) -> str:
        return self.network.hosts[host].ip

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(WATCH_S)
            for member in self.members:
                if member.pid is None:
                    member.start()


def _of_node(number: int, coordinators: str) -> dict[str, str]:
    """The settings of a node. Every other one is told of no coordinator: it finds them in etcd."""
    told = {} if number % 2 else {"coordinator": coordinators}
    return {"node_id": str(number), **told}
