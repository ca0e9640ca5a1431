"""Starts Apache Kafka for a benchmark: one node without ZooKeeper, on loopback."""

import importlib
import os
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from java import JavaMissing, ensure_java

from benchmark.baselines.kafka_jars import LIST, BadJar, class_path
from benchmark.processes import Server, Unavailable, free_port, stop, wait_for

HEAP = "-Xmx1g"
FORMAT_S_MAX = 120
NAME = "Kafka"


@contextmanager
def kafka(folder: Path, downloads: Path) -> Iterator[Server]:
    """Run Kafka with its data in the folder. Raises Unavailable when that cannot be done here."""
    with KafkaNode(folder / "kafka", downloads, HEAP) as node:
        yield Server(NAME, node.pid, node.address)


class KafkaNode:
    """One node that is broker and controller; it can be killed and started again on its data.

    `more`: settings besides those that it needs. Raises Unavailable when there is no Java, no jars
    or no client for it, and when it does not start.
    """

    def __init__(
        self, folder: Path, downloads: Path, heap: str = HEAP, more: Mapping[str, str] | None = None
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
        self._folder, self._port = folder, free_port()
        self._settings = folder / "server.properties"
        self._settings.write_text(_settings(folder, self._port, free_port(), more or {}))
        self._command = [str(java), heap, "-cp", os.pathsep.join(map(str, jars))]
        self._process: subprocess.Popen[bytes] | None = None
        tool = ["kafka.tools.StorageTool", "format", "-c", str(self._settings)]
        _format([*self._command, *tool])
        self.start()

    @property
    def address(self) -> str:
        """HOST:PORT, the same after each start."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it on the data that it has; returns when it listens."""
        with (self._folder / "log").open("ab") as log:
            command = [*self._command, "kafka.Kafka", str(self._settings)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for(self._port, self._process, self._folder / "log", NAME)
        except BaseException:
            self.kill()
            raise

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


def _format(command: list[str]) -> None:
    # The first letter may be a hyphen, which the tool would take for an option.
    cluster = "k" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
    try:
        done = subprocess.run(
            [*command, "-t", cluster],
            capture_output=True, text=True, check=False, timeout=FORMAT_S_MAX,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"Kafka's folder cannot be formatted: {error}") from error
    if done.returncode:
        raise Unavailable(f"Kafka's folder cannot be formatted: {done.stderr[-300:]}")


def _settings(place: Path, port: int, controller: int, more: Mapping[str, str]) -> str:
    """One node is broker and controller; what would be replicated has one replica."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
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
