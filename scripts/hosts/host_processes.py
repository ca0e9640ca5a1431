"""Kafka nodes and etcd members on hosts of their own, started again and again."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from benchmark.baselines.kafka_server import KafkaNode

from hosts.namespaces import Host

CLIENT_PORT, PEER_PORT = 2379, 2380


class HostProcess(Protocol):
    """One process that may be killed and stopped; `pid` is None while it is dead."""

    starts: int

    @property
    def name(self) -> str: ...

    @property
    def pid(self) -> int | None: ...

    def start(self) -> None:
        """Start it, and do not wait for it."""
        ...

    def signal(self, number: signal.Signals) -> bool:
        """False when there is nobody."""
        ...

    def end(self) -> None: ...


class KafkaOnHost:
    """Starts a node on what it has."""

    def __init__(self, name: str, node: KafkaNode) -> None:
        self.name, self.node = name, node
        self.starts = 1

    @property
    def pid(self) -> int | None:
        return self.node.pid if self.node.alive else None

    def start(self) -> None:
        self.starts += 1
        self.node.launch()

    def signal(self, number: signal.Signals) -> bool:
        return _signal(self.pid, number)

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.node.kill()


class EtcdOnHost:
    """A member of a cluster of these `hosts`, of which its own has the same name."""

    def __init__(
        self, name: str, hosts: Sequence[tuple[str, Host]], folder: Path, program: str
    ) -> None:
        """`program`: the path of etcd."""
        self.name = name
        self.starts = 0
        self._said = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        host = dict(hosts)[name]
        own, peer = (f"http://{host.ip}:{it}" for it in (CLIENT_PORT, PEER_PORT))
        members = ",".join([f"{each}=http://{it.ip}:{PEER_PORT}" for each, it in hosts])
        self._command = [
            *host.inside, program, "--name", name, "--data-dir", str(folder / name),
            "--listen-client-urls", own, "--advertise-client-urls", own,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", members, "--initial-cluster-token", str(folder),
            "--heartbeat-interval", "100", "--election-timeout", "1000",
            "--log-level", "error", "--logger", "zap",
        ]  # fmt: skip

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        self.starts += 1
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(self._command, stdout=said, stderr=said)

    def signal(self, number: signal.Signals) -> bool:
        return _signal(self.pid, number)

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()


def _signal(pid: int | None, number: signal.Signals) -> bool:
    if pid is not None:
        os.kill(pid, number)
    return pid is not None
