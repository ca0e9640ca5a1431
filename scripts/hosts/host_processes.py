"""Kafka nodes and etcd members on hosts of their own, started again and again."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from benchmark.baselines.kafka_server import KafkaNode

from hosts.namespaces import Host

CLIENT_PORT, PEER_PORT = 2379, 2380
END_S_MAX = 10.0


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
        self,
        name: str,
        hosts: Sequence[tuple[str, Host]],
        folder: Path,
        program: str,
        ports: tuple[int, int] = (CLIENT_PORT, PEER_PORT),
    ) -> None:
        """`program`: the path of etcd. `ports`: of clients and of members, on each host."""
        self.name = name
        self.starts = 0
        self._said = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        host = dict(hosts)[name]
        own, peer = (f"http://{host.ip}:{it}" for it in ports)
        members = ",".join([f"{each}=http://{it.ip}:{ports[1]}" for each, it in hosts])
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


class CommandOnHost:
    """Any command, in a group of its own: what it starts is killed with it.

    `log`: the file for what it says; `ready`: words of a line that it says when it serves.
    """

    def __init__(
        self,
        name: str,
        host: Host,
        command: Sequence[str],
        log: Path,
        ready: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.starts = 0
        self._command = [*host.inside, *command]
        self._log, self._ready = log, ready
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._from = 0

    @property
    def pid(self) -> int | None:
        """See HostProcess."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def serves(self) -> bool:
        """Whether it has said so since its last start."""
        with self._log.open("rb") as file:
            file.seek(self._from)
            said = file.read().decode(errors="replace")
        return any(words in said for words in self._ready)

    @property
    def said(self) -> str:
        """The end of what it said."""
        return self._log.read_text(errors="replace")[-600:]

    def start(self) -> None:
        """See HostProcess."""
        self.starts += 1
        with self._log.open("ab") as log:
            self._from = log.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self._environment,
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> bool:
        """See HostProcess. The whole group gets it."""
        if self.pid is not None:
            os.killpg(self.pid, number)
        return self.pid is not None

    def end(self) -> None:
        """SIGTERM; SIGKILL when that takes too long."""
        if self._process is None:
            return
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self._process.wait()


def _signal(pid: int | None, number: signal.Signals) -> bool:
    if pid is not None:
        os.kill(pid, number)
    return pid is not None
