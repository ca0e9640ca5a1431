"""Who sits where: the hosts of a cluster, in namespaces or on loopback, and what runs on each."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyspark
from benchmark.baselines.kafka_server import KafkaSeat
from benchmark.processes import free_port
from hosts.host_network import host_network
from hosts.host_processes import CLIENT_PORT, PEER_PORT, CommandOnHost, EtcdOnHost
from hosts.namespaces import Host, NoNamespaces
from java import ensure_java

LEADERS = ("a", "b")
"""Hosts with a coordinator and a node; the other nodes have hosts of their own."""
MORE_NODES = "cdefgh"
SPARK, DRIVER = "spark", "driver"
WORKERS = ("w1", "w2")
PORT, NODE_PORT, SPARK_PORT = 7100, 7101, 7077
KAFKA_PORT, KAFKA_CONTROLLER = 9092, 9093
READY = ("tidemark ready", "tidemark standby")
SPARK_READY = {"Master": ("I have been elected leader",), "Worker": ("Successfully registered",)}
LEASE_S = "4"


class Network(Protocol):
    """The hosts, and the links between them."""

    hosts: Mapping[str, Host]

    def cut(self, key: str, senders: Sequence[str], receivers: Sequence[str]) -> None:
        """What the first ones send does not reach the others. Raises NoNamespaces."""
        ...

    def heal(self, key: str) -> None:
        """Take that back."""
        ...


class Loopback:
    """Hosts that are all this machine: processes die here as well, but no link can be cut."""

    def __init__(self, names: Sequence[str]) -> None:
        self.hosts: Mapping[str, Host] = {name: Host("", "127.0.0.1") for name in names}

    def cut(self, key: str, senders: Sequence[str], receivers: Sequence[str]) -> None:
        """See Network."""
        raise NoNamespaces("on loopback there is no link to cut")

    def heal(self, key: str) -> None:
        """See Network."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `up` was asked for."""

    folder: Path
    nodes: int = 3
    quorum: int = 1
    loopback: bool = False
    spark: bool = True

    @property
    def stores(self) -> list[str]:
        """The hosts of Kafka and etcd."""
        return ["store"] if self.quorum == 1 else [f"store{it + 1}" for it in range(self.quorum)]

    @property
    def node_hosts(self) -> list[str]:
        """One for each node."""
        return [*LEADERS, *MORE_NODES][: self.nodes]

    @property
    def hosts(self) -> list[str]:
        """All of them."""
        served = dict.fromkeys([*LEADERS, *self.node_hosts])
        return [*self.stores, *served, *([SPARK, *WORKERS] if self.spark else []), DRIVER]


@contextmanager
def network_of(wanted: Wanted) -> Iterator[Network]:
    """The hosts. Raises NoNamespaces, unless loopback is wanted."""
    if wanted.loopback:
        yield Loopback(wanted.hosts)
        return
    with host_network(wanted.hosts, seed=1) as network:
        yield network


class Seats:
    """Makes the processes of a cluster; each port is a usual one, on loopback a free one."""

    def __init__(self, wanted: Wanted, network: Network, etcd: str) -> None:
        self._wanted, self._network, self._etcd = wanted, network, etcd
        self._etcd_ports = self._port(CLIENT_PORT), self._port(PEER_PORT)
        self._kafka_ports = self._port(KAFKA_PORT), self._port(KAFKA_CONTROLLER)
        self._coordinators = {it: f"{self.ip(it)}:{self._port(PORT)}" for it in LEADERS}
        self.servers = ",".join(self._coordinators.values())
        self.spark = f"spark://{self.ip(SPARK)}:{self._port(SPARK_PORT)}" if wanted.spark else ""

    def ip(self, host: str) -> str:
        """Of a host."""
        return self._network.hosts[host].ip

    def etcds(self) -> dict[str, EtcdOnHost]:
        """By host."""
        hosts = self._wanted.stores
        members = [(f"etcd-{it}", self._network.hosts[it]) for it in hosts]
        place = self._wanted.folder, self._etcd, self._etcd_ports
        return {it: EtcdOnHost(f"etcd-{it}", members, *place) for it in hosts}

    def kafkas(self) -> list[KafkaSeat]:
        """In the order of the stores."""
        port, controller = self._kafka_ports
        return [
            KafkaSeat(
                host=self.ip(it), port=port, controller=controller,
                inside=self._network.hosts[it].inside,
            )
            for it in self._wanted.stores
        ]  # fmt: skip

    def coordinators(self) -> dict[str, CommandOnHost]:
        """By host."""
        return {
            host: self._tidemark("coordinator", host, number, address)
            for number, (host, address) in enumerate(self._coordinators.items(), 1)
        }

    def nodes(self) -> dict[str, CommandOnHost]:
        """By host. They are told of no coordinator: they find them in etcd."""
        return {
            host: self._tidemark("node", host, number, f"{self.ip(host)}:{self._port(NODE_PORT)}")
            for number, host in enumerate(self._wanted.node_hosts, 1)
        }

    def sparks(self) -> dict[str, CommandOnHost]:
        """Master and workers, by host."""
        if not self._wanted.spark:
            return {}
        port = self.spark.rpartition(":")[2]
        master = ["--host", self.ip(SPARK), "--port", port, "--webui-port", "0"]
        made = {SPARK: self._spark("Master", SPARK, *master)}
        for host in WORKERS:
            limits = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
            place = ("--work-dir", str(self._wanted.folder / f"spark-{host}"))
            made[host] = self._spark(
                "Worker", host, "--host", self.ip(host), *limits, *place, self.spark
            )
        return made

    def _tidemark(self, role: str, host: str, number: int, listen: str) -> CommandOnHost:
        name = f"{role}-{number}"
        copies = self._wanted.quorum
        synced = f"min_isr={copies // 2 + 1}" if copies > 1 else "min_isr=1&sync=replicas"
        log = f"kafka://{self._of_stores(self._kafka_ports[0])}/cluster"
        settings = {
            "data_dir": str(self._wanted.folder / host / "data"),
            "meta": f"etcd://{self._of_stores(self._etcd_ports[0])}/cluster",
            "wal": f"{log}?replication={copies}&{synced}",
            "listen": listen,
            "insecure": "true",
            "leader_lease_s": LEASE_S,
            "node_lease_s": LEASE_S,
            "milvus_root": "by-dev",
            "pchannels": "8",
            **({"node_id": str(number)} if role == "node" else {}),
        }
        return CommandOnHost(
            name,
            self._network.hosts[host],
            [sys.executable, "-m", "broker", role],
            self._wanted.folder / f"{name}.log",
            READY,
            {f"TIDEMARK_{key.upper()}": value for key, value in settings.items()},
        )

    def _spark(self, what: str, host: str, *words: str) -> CommandOnHost:
        home = Path(pyspark.__file__).parent
        name = "spark-master" if what == "Master" else f"spark-worker-{host}"
        run = ["bash", str(home / "bin" / "spark-class")]
        return CommandOnHost(
            name,
            self._network.hosts[host],
            [*run, f"org.apache.spark.deploy.{what.lower()}.{what}", *words],
            self._wanted.folder / f"{name}.log",
            SPARK_READY[what],
            {
                "SPARK_HOME": str(home),
                "JAVA_HOME": str(ensure_java()),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC",
                "SPARK_LOCAL_IP": self.ip(host),
                "PYSPARK_PYTHON": sys.executable,
            },
        )

    def _of_stores(self, port: int) -> str:
        return ",".join([f"{self.ip(it)}:{port}" for it in self._wanted.stores])

    def _port(self, usual: int) -> int:
        return free_port() if self._wanted.loopback else usual
