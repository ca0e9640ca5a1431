"""Kafka for tests: one node for all tests of a file, and clusters of three."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest
from benchmark.baselines.kafka_server import KafkaNode, KafkaSeat
from benchmark.options import WORK
from benchmark.processes import Unavailable
from hosts.kafka_members import QUICK, kafka_members

from broker.wal.kafka.kafka_url import KafkaPlace
from tests.missing_part import missing_part

HEAP = "-Xmx384m"
DOWNLOADS = WORK / "downloads"
_prefixes = count(1)


@pytest.fixture(scope="module")
def kafka_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """Skips where there is no Java, or the jars cannot be fetched.

    Each file that imports it has a node of its own, which is to end with the file: idle, it takes
    2 % of a core.
    """
    try:
        node = KafkaNode(tmp_path_factory.mktemp("kafka") / "node", DOWNLOADS, HEAP, QUICK)
    except Unavailable as reason:
        missing_part(f"no Kafka: {reason}")
    with node:
        yield node


def new_place(node: KafkaNode) -> KafkaPlace:
    """A prefix that no other test uses."""
    return KafkaPlace((node.address,), f"test-{next(_prefixes)}", 1, 1, syncs=False)


@contextmanager
def kafka_cluster(folder: Path, seats: Sequence[KafkaSeat] = ()) -> Iterator[list[KafkaNode]]:
    """Three nodes, or one in each seat; all listen when the block begins. Skips as `kafka_node`."""
    places = seats or [KafkaSeat() for _ in range(3)]
    with ExitStack() as stack:
        try:
            nodes = stack.enter_context(kafka_members(folder, DOWNLOADS, places))
        except Unavailable as reason:
            missing_part(f"no Kafka: {reason}")
        yield nodes
