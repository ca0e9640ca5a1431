"""The drivers of the log port that the contract suite runs on."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.model.ids import MessageId, PChannelName, Term
from broker.model.record import Record
from broker.ports.wal import Log, Wal
from broker.wal.memory_wal import MemoryWal
from broker.wal.segmented import OsFiles, SegmentedSettings, SegmentedWal
from tests.broker.wal.faulty_files import FaultyFiles

CHANNEL = PChannelName("by-dev-rootcoord-dml_0")
SMALL = SegmentedSettings(
    segment_bytes=16384, first_segment_bytes=8192, growth=2, index_spacing_bytes=512,
    open_files_max=2, indexes_max=2,
)  # fmt: skip


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


@pytest.fixture(params=["memory", "segmented", "faulty"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    """Each driver with small segments."""
    with ThreadPoolExecutor(1) as background:
        match request.param:
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
