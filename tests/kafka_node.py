"""Kafka for tests: one node for all tests of a worker, and clusters of three."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from benchmark.baselines.kafka_jars import LIST, BadJar, class_path
from benchmark.baselines.kafka_server import KafkaNode, KafkaSeat, new_cluster_id
from benchmark.options import WORK
from benchmark.processes import Unavailable
from java import JavaMissing, ensure_java

from broker.wal.kafka.kafka_url import KafkaPlace

HEAP = "-Xmx384m"
DOWNLOADS = WORK / "downloads"
QUICK = {
    # One worker's topics are small and many.
    "log.segment.bytes": "16777216",
    "log.index.size.max.bytes": "65536",
    "num.io.threads": "4",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
ALERT = {
    # A dead node is known to be dead within a second or two.
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "300",
    "offsets.topic.num.partitions": "1",
}
SMALL_HEAP = "-Xmx256m"
_prefixes = count(1)


@pytest.fixture(scope="session")
def kafka_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """Skips where there is no Java, or the jars cannot be fetched."""
    try:
        node = KafkaNode(tmp_path_factory.mktemp("kafka") / "node", DOWNLOADS, HEAP, QUICK)
    except Unavailable as reason:
        pytest.skip(f"no Kafka: {reason}")
    with node:
        yield node


def fetch_kafka() -> None:
    """Fetch what nodes need, for those that are made where no network is. Raises Unavailable."""
    try:
        ensure_java()
        class_path(DOWNLOADS / "kafka", LIST.read_text())
    except (BadJar, JavaMissing) as error:
        raise Unavailable(str(error)) from error


def new_place(node: KafkaNode) -> KafkaPlace:
    """A prefix that no other test uses."""
    return KafkaPlace((node.address,), f"test-{next(_prefixes)}", 1, 1, syncs=False)


@contextmanager
def kafka_cluster(folder: Path, seats: Sequence[KafkaSeat] = ()) -> Iterator[list[KafkaNode]]:
    """Three nodes, or one in each seat; all listen when the block begins. Skips as `kafka_node`."""
    cluster = new_cluster_id()
    placed = [
        replace(it, number=number, cluster=cluster)
        for number, it in enumerate(seats or [KafkaSeat() for _ in range(3)], 1)
    ]
    voters = tuple(it.voter for it in placed)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            nodes = [
                KafkaNode(
                    folder / f"kafka-{it.number}", DOWNLOADS, SMALL_HEAP, QUICK | ALERT,
                    replace(it, voters=voters),
                )
                for it in placed
            ]  # fmt: skip
        except Unavailable as reason:
            pytest.skip(f"no Kafka: {reason}")
        for node in nodes:
            stack.callback(node.kill)
            node.launch()
        for node in nodes:
            node.wait()
        yield nodes
