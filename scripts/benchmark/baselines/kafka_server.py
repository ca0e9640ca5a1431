"""Starts Apache Kafka without ZooKeeper: one node on loopback, or members of a cluster."""

import importlib
import os
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from java import JavaMissing, ensure_java

from benchmark.baselines.kafka_jars import LIST, BadJar, class_path
from benchmark.processes import Server, Unavailable, free_port, stop, wait_for

HEAP = "-Xmx1g"
TOOL_S_MAX = 120
NAME = "Kafka"


def new_cluster_id() -> str:
    """What all members of a cluster are formatted with."""
    # The first letter may be a hyphen, which the tool would take for an option.
    return "k" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


@dataclass(frozen=True, slots=True)
class KafkaSeat:
    """The place of a node in its cluster: by itself, unless `voters` names all of them.

    `inside`: the words that run a command on its host; the pid must stay the same.
    """

    number: int = 1
    host: str = "127.0.0.1"
    port: int = field(default_factory=free_port)
    controller: int = field(default_factory=free_port)
    cluster: str = field(default_factory=new_cluster_id)
    voters: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()

    @property
    def voter(self) -> str:
        """As `voters` names it."""
        return f"{self.number}@{self.host}:{self.controller}"


@contextmanager
def kafka(folder: Path, downloads: Path) -> Iterator[Server]:
    """Run Kafka with its data in the folder. Raises Unavailable when that cannot be done here."""
    with KafkaNode(folder / "kafka", downloads, HEAP) as node:
        yield Server(NAME, node.pid, node.address)


class KafkaNode:
    """One node that is broker and controller; it can be killed and started again on its data.

    `more`: settings besides those that it needs. Raises Unavailable when there is no Java, no jars
    or no client for it, and when it does not start. One with other voters is not started at once:
    it needs most of them to be ready.
    """

    def __init__(
        self,
        folder: Path,
        downloads: Path,
        heap: str = HEAP,
        more: Mapping[str, str] | None = None,
        seat: KafkaSeat | None = None,
    ) -> None:
        try:
            importlib.import_module("confluent_kafka")
            java = ensure_java() / "bin" / "java"
            jars = class_path(downloads / "kafka", LIST.read_text())
        except ImportError as error:
            raise Unavailable(f"confluent-kafka is not installed: {error}") from error
        except (BadJar, JavaMissing) as error:
            raise Unavailable(str(error)) from error
        folder.mkdir()
        self._folder, self.seat = folder, seat or KafkaSeat()
        self._settings = folder / "server.properties"
        self._settings.write_text(_settings(folder, self.seat, more or {}))
        self._command = [str(java), heap, "-cp", os.pathsep.join(map(str, jars))]
        self._process: subprocess.Popen[bytes] | None = None
        tool = ["kafka.tools.StorageTool", "format", "-c", str(self._settings)]
        format_it = [*self._command, *tool, "-t", self.seat.cluster]
        _done(format_it, "Kafka's folder cannot be formatted")
        if not self.seat.voters:
            self.start()

    @property
    def address(self) -> str:
        """HOST:PORT, the same after each start."""
        return f"{self.seat.host}:{self.seat.port}"

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it on the data that it has; returns when it listens."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start its process, and do not wait for it."""
        with (self._folder / "log").open("ab") as log:
            command = [*self.seat.inside, *self._command, "kafka.Kafka", str(self._settings)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def wait(self) -> None:
        """Until it listens. Raises Unavailable when it ends, or takes too long."""
        assert self._process is not None
        try:
            place = self.seat.host, self.seat.port
            wait_for(place, self._process, self._folder / "log", NAME)
        except BaseException:
            self.kill()
            raise

    def tool(self, name: str, *words: str) -> str:
        """Run one of Kafka's own tools on this node; what it printed. Raises Unavailable."""
        command = [*self.seat.inside, *self._command, name, "--bootstrap-server", self.address]
        return _done([*command, *words], f"{name} failed")

    def kill(self) -> None:
        """End it as kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> "KafkaNode":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            stop(self._process)
            self._process = None


def _done(command: Sequence[str], failed: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TOOL_S_MAX
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{failed}: {error}") from error
    if done.returncode:
        raise Unavailable(f"{failed}: {(done.stderr or done.stdout)[-300:]}")
    return done.stdout


def _settings(place: Path, seat: KafkaSeat, more: Mapping[str, str]) -> str:
    """A node is broker and controller; what would be replicated has one replica."""
    plain = f"PLAINTEXT://{seat.host}:{seat.port}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(seat.number),
        "controller.quorum.voters": ",".join(seat.voters or (seat.voter,)),
        "listeners": f"{plain},CONTROLLER://{seat.host}:{seat.controller}",
        "advertised.listeners": plain,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(place / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **more,
    }
    return "".join([f"{name}={value}\n" for name, value in settings.items()])
