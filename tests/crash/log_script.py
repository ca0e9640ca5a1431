"""One scripted history of a log on a faulty disk, and what must hold for whatever survives."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.model.ids import MessageId, PChannelName, Term
from broker.model.record import Record
from broker.model.retention.policy import Retention
from broker.ports.wal import WalError
from broker.wal.segmented import SegmentedSettings, SegmentedWal
from broker.wal.segmented.log import remove_segments
from broker.wal.segmented.segmented_wal import Opened
from tests.broker.wal.faulty_files import AtOnce, FaultyFiles, PowerCut
from tests.broker.wal.some_records import group

CHANNEL = PChannelName("c")
TINY = SegmentedSettings(
    segment_bytes=4096 + 3000,
    first_segment_bytes=4096 + 1500,
    growth=2,
    index_spacing_bytes=256,
    open_files_max=2,
    indexes_max=2,
)


@dataclass(slots=True)
class Life:
    """What a program knows of its log: what was acknowledged, and what it tried."""

    files: FaultyFiles
    term: int = 0
    acknowledged: list[Record] = field(default_factory=list)
    tried: list[Record] = field(default_factory=list)
    first_id: int = 1

    def wal(self) -> SegmentedWal:
        numbers = random.Random(self.term)
        return SegmentedWal(
            self.files, TINY, background=AtOnce(), salt=lambda: numbers.getrandbits(32)
        )

    def open(self) -> Opened:
        self.term += 1
        return self.wal().open_now(CHANNEL, Term(self.term))

    def append(self, opened: Opened, records: int, *, messages: int, size: int) -> None:
        next_id = opened.writer.bounds().next_id
        self.tried = group(
            next_id, records, term=self.term, messages=messages, size=size, txn_every=2
        )
        opened.writer.append(self.tried)
        self.acknowledged += self.tried
        self.tried = []

    def truncate(self, opened: Opened, bytes_max: int) -> None:
        next_id = opened.writer.bounds().next_id
        gone = opened.writer.drop_segments(next_id, Retention(bytes_max=bytes_max), 0)
        if gone:
            self.first_id = gone[-1].next_id
            try:
                remove_segments(opened.place, gone)
            except OSError:
                pass  # whatever is left is removed by the next opening

    def check(self, opened: Opened) -> None:
        """All that was acknowledged, a beginning of what was tried, and nothing else."""
        bounds, found = opened.writer.bounds(), everything(opened)
        assert bounds.first_id <= self.first_id, "removed what nobody asked to remove"
        known = [*self.acknowledged, *self.tried]
        expected = [r for r in known if r.base_id >= bounds.first_id]
        assert found == expected[: len(found)], "a record that nobody wrote, or out of order"
        assert bounds.next_id >= self.acknowledged[-1].next_id if self.acknowledged else True
        last = found[-1].last_tick if found else bounds.last_tick
        assert bounds.last_tick == last
        self.acknowledged = [*(r for r in known if r.base_id < bounds.first_id), *found]
        self.tried = []

    def survive(self, files: FaultyFiles) -> None:
        self.files = files


def everything(opened: Opened) -> Sequence[Record]:
    """All records the log holds."""
    found, at = list[Record](), opened.writer.bounds().first_id
    while at < opened.writer.bounds().next_id:
        found += opened.reader.read(at, 700)
        at = MessageId(found[-1].next_id)
    return found


def live(life: Life) -> None:
    """Two terms with several segments each, a truncation in both, and an orderly end."""
    for _ in range(2):
        opened = life.open()
        life.check(opened)
        for count, messages, size in ((1, 1, 40), (3, 2, 100), (2, 5, 60), (1, 1, 0), (4, 3, 90)):
            life.append(opened, count, messages=messages, size=size)
        life.truncate(opened, 2500)
        life.append(opened, 2, messages=2, size=30)
        opened.writer.close()


def live_until_cut(life: Life) -> bool:
    """Whether the power was cut on the way, or a fault ended the life before its time."""
    try:
        live(life)
    except (PowerCut, WalError):
        return True
    return life.files.dead
