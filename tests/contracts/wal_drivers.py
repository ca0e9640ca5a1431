"""The drivers of the log port that the contract suite runs on."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.model.ids import MessageId, PChannelName, Term
from broker.model.record import Record
from broker.ports.wal import Log, Wal
from broker.wal.kafka.fetched import Fetched
from broker.wal.kafka.kafka_wal import KafkaSizes, KafkaWal
from broker.wal.memory_wal import MemoryWal
from broker.wal.segmented import OsFiles, SegmentedSettings, SegmentedWal
from tests.broker.wal.faulty_files import FaultyFiles
from tests.broker.wal.kafka.topic_in_memory import MemoryTopics
from tests.kafka_node import kafka_node, new_place

__all__ = ["driver", "kafka_node", "rewriting_driver"]

CHANNEL = PChannelName("by-dev-rootcoord-dml_0")
SMALL = SegmentedSettings(
    segment_bytes=16384, first_segment_bytes=8192, growth=2, index_spacing_bytes=512,
    open_files_max=2, indexes_max=2,
)  # fmt: skip


TOPICS = KafkaSizes(segment_bytes=8192, index_spacing_bytes=512, record_bytes_max=1 << 20)


@dataclass(slots=True)
class Driver:
    """`again` gives a new Wal on the same storage, as a restarted process would have."""

    name: str
    again: Callable[[], Wal]
    term: int = 0

    async def open(self, term: int | None = None) -> Log:
        """At the next term."""
        self.term = self.term + 1 if term is None else term
        return await self.again().open(CHANNEL, Term(self.term))


REWRITING = ("memory", "segmented", "faulty")
"""Those that give back space in the middle of a log."""


@pytest.fixture(params=(*REWRITING, "topics", "kafka"))
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    """Each driver with small segments; "topics": that of Kafka, with topics in memory."""
    if request.param == "kafka":
        place = new_place(request.getfixturevalue("kafka_node"))
        with closing(KafkaWal(place, "c", TOPICS)) as in_kafka:
            yield Driver("kafka", lambda: in_kafka)
    elif request.param == "topics":
        topics = MemoryTopics(TOPICS)
        topics.fetched = Fetched()
        yield Driver("topics", lambda: topics)
    else:
        yield from _on_files(request.param, tmp_path)


@pytest.fixture(name="driver", params=REWRITING)
def rewriting_driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    """Each driver that gives back space in the middle of a log."""
    yield from _on_files(request.param, tmp_path)


def _on_files(name: str, tmp_path: Path) -> Iterator[Driver]:
    with ThreadPoolExecutor(1) as background:
        match name:
            case "memory":
                wal = MemoryWal(segment_bytes=8192)
                yield Driver("memory", lambda: wal)
            case "segmented":
                files = OsFiles(tmp_path)
                yield Driver("segmented", lambda: SegmentedWal(files, SMALL, background=background))
            case _:
                faulty = FaultyFiles()
                yield Driver("faulty", lambda: SegmentedWal(faulty, SMALL, background=background))


async def read_all(log: Log, bytes_max: int = 3000) -> list[Record]:
    """Everything the log holds, in reads of about `bytes_max`."""
    bounds, found = log.bounds(), list[Record]()
    at = bounds.first_id
    while at < bounds.next_id:
        batch = await log.read(at, bytes_max)
        assert batch, f"nothing at {at} of {bounds}"
        found += batch
        at = MessageId(batch[-1].next_id)
    return found
