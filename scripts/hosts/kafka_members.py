"""A cluster of Kafka nodes, small and quick to notice a dead one."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from benchmark.baselines.kafka_jars import LIST, BadJar, class_path
from benchmark.baselines.kafka_server import KafkaNode, KafkaSeat, new_cluster_id
from benchmark.processes import Unavailable
from java import JavaMissing, ensure_java

QUICK = {
    # Topics are small and many.
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


@contextmanager
def kafka_members(
    folder: Path, downloads: Path, seats: Sequence[KafkaSeat]
) -> Iterator[list[KafkaNode]]:
    """One node in each seat; all listen when the block begins. Raises Unavailable."""
    cluster = new_cluster_id()
    placed = [replace(it, number=number, cluster=cluster) for number, it in enumerate(seats, 1)]
    voters = tuple(it.voter for it in placed)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        nodes = [
            KafkaNode(
                folder / f"kafka-{it.number}", downloads, SMALL_HEAP, QUICK | ALERT,
                replace(it, voters=voters),
            )
            for it in placed
        ]  # fmt: skip
        for node in nodes:
            stack.callback(node.kill)
            node.launch()
        for node in nodes:
            node.wait()
        yield nodes


def fetch_kafka(downloads: Path) -> None:
    """Fetch what nodes need, for those that are made where no network is. Raises Unavailable."""
    try:
        ensure_java()
        class_path(downloads / "kafka", LIST.read_text())
    except (BadJar, JavaMissing) as error:
        raise Unavailable(str(error)) from error
