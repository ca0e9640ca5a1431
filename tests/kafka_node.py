"""Kafka for tests: one node for all tests of a file, and clusters of three."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest
from benchmark import processes
from benchmark.baselines.kafka_server import KafkaNode, KafkaSeat
from benchmark.options import WORK
from benchmark.processes import Unavailable
from hosts.kafka_members import QUICK, kafka_members

from broker.wal.kafka.kafka_url import KafkaPlace
from tests.broker_process import free_port
from tests.missing_part import missing_part

HEAP = "-Xmx384m"
DOWNLOADS = WORK / "downloads"
READY_S_MAX = 180
_prefixes = count(1)


@pytest.fixture(scope="module")
def kafka_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """Skips where there is no Java, or the jars cannot be fetched.

    Each file that imports it has a node of its own, which is to end with the file: idle, it takes
    2 % of a core.
    """
    folder = tmp_path_factory.mktemp("kafka") / "node"
    with _patient():
        try:
            node = KafkaNode(folder, DOWNLOADS, HEAP, QUICK, _seat())
        except Unavailable as reason:
            missing_part(f"no Kafka: {reason}")
        with node:
            yield node


@contextmanager
def _patient() -> Iterator[None]:
    """A node may start late, also when a test has killed it: a busy machine starts Java slowly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "READY_S_MAX", READY_S_MAX)
        yield


def _seat() -> KafkaSeat:
    """With ports that nobody is given by the system while the node is not there."""
    return KafkaSeat(port=free_port(), controller=free_port())


def new_place(node: KafkaNode) -> KafkaPlace:
    """A prefix that no other test uses."""
    return KafkaPlace((node.address,), f"test-{next(_prefixes)}", 1, 1, syncs=False)


@pytest.fixture(scope="module")
def kafka_nodes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[KafkaNode]]:
    """A cluster of three, for a file that is asked for by an option."""
    if not request.config.getoption("kafka_cluster"):
        pytest.skip("three nodes of Kafka take a minute of CPU: ask for them with --kafka-cluster")
    with kafka_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@contextmanager
def kafka_cluster(folder: Path, seats: Sequence[KafkaSeat] = ()) -> Iterator[list[KafkaNode]]:
    """Three nodes, or one in each seat; all listen when the block begins. Skips as `kafka_node`."""
    places = seats or [_seat() for _ in range(3)]
    with _patient(), ExitStack() as stack:
        try:
            nodes = stack.enter_context(kafka_members(folder, DOWNLOADS, places))
        except Unavailable as reason:
            missing_part(f"no Kafka: {reason}")
        yield nodes
