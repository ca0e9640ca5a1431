"""A Kafka for tests: one node for all tests of a worker, started when the first one needs it."""

from collections.abc import Iterator
from itertools import count

import pytest
from benchmark.baselines.kafka_server import KafkaNode
from benchmark.options import WORK
from benchmark.processes import Unavailable

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


def new_place(node: KafkaNode) -> KafkaPlace:
    """A prefix that no other test uses."""
    return KafkaPlace((node.address,), f"test-{next(_prefixes)}", 1, 1, syncs=False)
