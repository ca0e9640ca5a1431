"""Starts Apache Kafka for a benchmark: one node without ZooKeeper, on loopback."""

import importlib
import os
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
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
    try:
        importlib.import_module("confluent_kafka")
        java = ensure_java() / "bin" / "java"
        jars = class_path(downloads / "kafka", LIST.read_text())
    except ImportError as error:
        raise Unavailable(f"confluent-kafka is not installed: {error}") from error
    except (BadJar, JavaMissing) as error:
        raise Unavailable(str(error)) from error
    place = folder / "kafka"
    place.mkdir()
    port = free_port()
    settings = place / "server.properties"
    settings.write_text(_settings(place, port, free_port()))
    command = [str(java), HEAP, "-cp", os.pathsep.join(map(str, jars))]
    _format([*command, "kafka.tools.StorageTool", "format", "-c", str(settings)])
    with (place / "log").open("wb") as log:
        process = subprocess.Popen([*command, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
    try:
        wait_for(port, process, place / "log", NAME)
        yield Server(NAME, process.pid, f"127.0.0.1:{port}")
    finally:
        stop(process)


def _format(command: list[str]) -> None:
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    try:
        done = subprocess.run(
            [*command, "-t", cluster],
            capture_output=True, text=True, check=False, timeout=FORMAT_S_MAX,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"Kafka's folder cannot be formatted: {error}") from error
    if done.returncode:
        raise Unavailable(f"Kafka's folder cannot be formatted: {done.stderr[-300:]}")


def _settings(place: Path, port: int, controller: int) -> str:
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
    }
    return "".join([f"{name}={value}\n" for name, value in settings.items()])
