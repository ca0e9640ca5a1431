"""A data folder without a broker: real log files and real metadata, written step by step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from broker.backup.live_folder import LiveFolder, Read
from broker.backup.manifest import Manifest
from broker.backup.taking import Backup, BackupFacts
from broker.coordinator.assignment.founding import found_cluster
from broker.core.naming import pchannel_names
from broker.data_folder import DataFolder
from broker.meta.sqlite import SqliteMetaStore
from broker.model.cut import Cut
from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.record import Record
from broker.model.retention.policy import Retention
from broker.wal.segmented.os_files import OsFiles
from broker.wal.segmented.segmented_wal import Opened, SegmentedWal
from broker.wal.segmented.settings import SegmentedSettings
from tests.broker.wal.some_records import record

SMALL = SegmentedSettings(segment_bytes=8192, first_segment_bytes=8192, growth=1)
PCHANNELS = pchannel_names("by-dev", 2)
FACTS = BackupFacts("by-dev", 1, "0")


def nothing(_: int) -> None:
    """A progress that nobody watches."""


@dataclass
class Folder:
    """Logs of two pchannels; `records`: all that were appended, by pchannel."""

    root: Path
    terms: dict[str, int] = field(default_factory=dict)
    records: dict[str, list[Record]] = field(default_factory=dict)
    open: dict[str, Opened] = field(default_factory=dict)
    tick: int = 0

    @property
    def data(self) -> DataFolder:
        return DataFolder(self.root)

    async def found(self) -> str:
        """The identity of the new cluster."""
        self.root.mkdir()
        async with await SqliteMetaStore.open(self.data.metadata) as store:
            cluster = await found_cluster(store, PCHANNELS)
        for name in PCHANNELS:
            self.records[name] = []
            self.reopen(name)
        return cluster.identity

    def reopen(self, name: PChannelName) -> None:
        """A new owner at the next term, as after a kill: the old one closes nothing."""
        self.terms[name] = self.terms.get(name, 0) + 1
        wal = SegmentedWal(OsFiles(self.data.log), SMALL)
        self.open[name] = wal.open_now(name, Term(self.terms[name]))

    def append(self, name: str, messages: int, size: int) -> None:
        opened = self.open[name]
        self.tick += 3
        new = record(
            opened.writer.bounds().next_id,
            term=self.terms[name],
            messages=messages,
            size=size,
            tick=self.tick,
        )
        self.tick = new.last_tick
        opened.writer.append([new])
        self.records[name].append(new)

    def truncate(self, name: str, bytes_max: int) -> None:
        """As retention does it: the mark first, then the files."""
        opened = self.open[name]
        before = opened.writer.bounds().first_id
        gone = opened.writer.drop_segments(
            opened.writer.bounds().next_id, Retention(bytes_max=bytes_max), 0
        )
        first = opened.writer.bounds().first_id
        if first == before:
            return
        files, folder = OsFiles(self.data.log), str(name)
        files.open(f"{folder}/{first:020d}.first", create=True).close()
        for segment in gone:
            files.remove(f"{folder}/{segment.name.log_file}")

    def kept(self, name: str, tick: int) -> list[Record]:
        """What a backup at the tick has to have."""
        first = self.open[name].writer.bounds().first_id
        return [it for it in self.records[name] if it.base_id >= first and it.last_tick <= tick]

    def cut_at(self, tick: int) -> "FixedCut":
        return FixedCut(TimeTick(tick))


@dataclass
class FixedCut:
    """Implements CutCluster without a broker: the tick is given."""

    tick: TimeTick

    async def __call__(self, pchannels: Sequence[str], read: Read, /) -> tuple[None, Cut]:
        await read()
        return None, Cut(self.tick, {name: MessageId(1) for name in pchannels})


async def back_up(
    folder: Folder, identity: str, target: Path, tick: int, previous: Path | None = None
) -> Manifest:
    with LiveFolder(folder.data, identity) as live:
        chosen = await live.choose_tick(folder.cut_at(tick))
        backup = Backup(live, chosen, target)
        backup.plan(previous)
        return backup.take(FACTS, nothing)


def read_log(root: Path, name: PChannelName, term: int) -> list[Record]:
    """All records, as a broker of this term reads them."""
    opened = SegmentedWal(OsFiles(root / "wal"), SMALL).open_now(name, Term(term))
    try:
        found: list[Record] = []
        at = opened.writer.bounds().first_id
        while part := opened.reader.read(at, 1 << 20):
            found += part
            at = part[-1].next_id
        return found
    finally:
        opened.reader.close()
        opened.writer.close()
