"""Starts the clusters whose processes are killed or restarted, on one folder or on many."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmark.baselines.kafka_server import KafkaNode
from benchmark.options import WORK
from hosts.etcd_program import fetched_etcd
from hosts.kafka_members import QUICK, SMALL_HEAP

from runs.failover_steps import LEVELS

STOP_S = 30.0
LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class Cluster:
    """The running processes. `coordinators`: none where one started the nodes and must live."""

    address: str
    nodes: int
    log: Path
    coordinators: "tuple[Restarted, ...]" = ()
    members: "tuple[Restarted, ...]" = ()
    """The nodes, where they are our own children, by their IDs from 1 on."""
    kills_leaders: bool = False
    """Whether the coordinator that leads is killed, not nodes."""

    def leader_of(self, address: str) -> "Restarted":
        """The coordinator that serves there."""
        return next(it for it in self.coordinators if address in it.arguments)


class Restarted:
    """A process that is started again right after it was killed."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self.arguments = arguments
        self._log = log
        self.process = self._start()

    @property
    def shown(self) -> str:
        """Its role, with what tells it from others."""
        return " ".join([self.arguments[0], *self.arguments[1:3]])

    def kill(self) -> None:
        """Kill and restart it; returns before the new process is ready."""
        self.process.kill()
        self._ended()
        self.process = self._start()

    def restart(self) -> None:
        """Stop it as a service manager does, and start it; returns before it is ready."""
        self.stop()
        self.process = self._start()

    def stop(self) -> None:
        """Stop it as a service manager does: with SIGKILL when that takes too long."""
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._ended()

    def address(self) -> str:
        """The address of its ready line; waits for that line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return dict(word.split("=", 1) for word in line.split()[2:])["listen"]

    def _ended(self) -> None:
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _start(self) -> "subprocess.Popen[str]":
        with self._log.open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "broker", *self.arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"TIDEMARK_LOG_LEVEL": LEVELS, "TIDEMARK_LOG_FORMAT": "json"},
            )


@contextmanager
def served(folder: Path, nodes: int) -> Iterator[Cluster]:
    """Run a coordinator that starts its nodes."""
    log, data = folder / "log", ("--data-dir", str(folder / "data"))
    serving = Restarted("serve", "--nodes", str(nodes), *data, "--listen", "127.0.0.1:0", log=log)
    try:
        yield Cluster(serving.address(), nodes, log)
    finally:
        serving.stop()


@contextmanager
def started_separately(
    folder: Path, nodes: int, coordinators: int, *, hosts: bool = False
) -> Iterator[Cluster]:
    """Run coordinators, of which one leads, and nodes that survive their deaths.

    `hosts`: each process has a data folder of its own; etcd and Kafka run beside them.
    """
    log = folder / "log"
    addresses = [f"{LOOPBACK}:{free_port()}" for _ in range(coordinators)]
    servers = ",".join(addresses)
    with ExitStack() as running:
        shared = running.enter_context(elsewhere(folder)) if hosts else ()

        def start(role: str, name: str, listen: str, *options: str) -> Restarted:
            data = ("--data-dir", str(folder / (name if hosts else "data")), *shared)
            process = Restarted(role, *options, "--listen", listen, *data, log=log)
            running.callback(process.stop)
            return process

        started = []
        for number, address in enumerate(addresses, 1):
            started.append(start("coordinator", f"coordinator-{number}", address))
            started[-1].address()
        members = []
        for number in range(1, nodes + 1):
            # On hosts of their own they find the coordinators in etcd.
            known = () if hosts else ("--coordinator", servers)
            options = ("--node-id", str(number), *known)
            members.append(start("node", f"node-{number}", f"{LOOPBACK}:0", *options))
        yield Cluster(servers, nodes, log, tuple(started), tuple(members))


@contextmanager
def elsewhere(folder: Path) -> Iterator[tuple[str, ...]]:
    """Run a member of etcd and a node of Kafka; the options of a process that uses them."""
    clients, peers = [f"http://{LOOPBACK}:{free_port()}" for _ in range(2)]
    command = [
        fetched_etcd(WORK / "etcd"), "--name", "one", "--data-dir", str(folder / "etcd"),
        "--listen-client-urls", clients, "--advertise-client-urls", clients,
        "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
        "--initial-cluster", f"one={peers}", "--log-level", "error", "--logger", "zap",
    ]  # fmt: skip
    with ExitStack() as running:
        said = running.enter_context((folder / "etcd-log").open("ab"))
        etcd = running.enter_context(subprocess.Popen(command, stdout=said, stderr=said))
        running.callback(etcd.kill)
        kafka = running.enter_context(
            KafkaNode(folder / "kafka", WORK / "downloads", SMALL_HEAP, QUICK)
        )
        yield (
            "--meta", f"etcd://{clients.removeprefix('http://')}/failover",
            "--wal", f"kafka://{kafka.address}/failover?replication=1&sync=replicas",
        )  # fmt: skip


def free_port() -> int:
    """A port that nobody listens on now; a restarted coordinator must use the same one."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
