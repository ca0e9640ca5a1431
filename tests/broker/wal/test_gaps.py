"""Rewritten segments: their editions, and damage in them."""

import errno
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest

from broker.backup.cut_logs import cut_log
from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from broker.model.record import Record
from broker.model.retention.dead import Dead
from broker.model.retention.policy import Retention
from broker.ports.wal import Corrupt, Fenced, WalError
from broker.wal.inspect import dump, verify
from broker.wal.segmented import OsFiles, SegmentedSettings, SegmentedWal
from broker.wal.segmented.editions import Editions
from broker.wal.segmented.segment import (
    HEADER_BYTES,
    LogSegment,
    SegmentName,
)
from broker.wal.segmented.segmented_wal import Opened
from tests.broker.wal.faulty_files import AtOnce, FaultyFiles
from tests.broker.wal.some_records import group, record

CHANNEL = PChannelName("c")
SALT = 77
SMALL = SegmentedSettings(segment_bytes=16 << 10, first_segment_bytes=8 << 10, growth=2)
GONE, KEPT = "c_2v0", "c_1v0"


def editions_of(opened: Opened) -> Editions:
    return Editions(opened.place, opened.claim, opened.writer, opened.reader)


class Rewritten:
    """A log on a disk, of which the first collection was dropped and given back."""

    def __init__(self, tmp_path: Path, *, skip_damage: bool = False) -> None:
        self.files = OsFiles(tmp_path)
        self.damages: list[Corrupt] = []
        settings = replace(SMALL, skip_damage=skip_damage)
        self.wal = SegmentedWal(
            self.files, settings, background=AtOnce(), on_damage=self.damages.append
        )
        self.folder = tmp_path / CHANNEL

    def fill(self, *, crashed: bool = False) -> list[Record]:
        """`crashed`: before the old files were removed."""
        opened = self.wal.open_now(CHANNEL, Term(1))
        written: list[Record] = []
        for at in range(1, 601, 3):
            vchannel = KEPT if at // 3 % 10 == 0 else GONE
            written.append(record(at, messages=3, size=100, vchannel=vchannel))
            opened.writer.append(written[-1:])
        sealed_to = opened.writer.view.sealed[-1].next_id
        old = {it: it.read_bytes() for it in self.logs()[:-1]}
        self.give_back(opened)
        for path, data in old.items() if crashed else ():
            path.write_bytes(data)
        opened.writer.close()
        return [it for it in written if it.vchannel == KEPT or it.base_id >= sealed_to]

    def give_back(self, opened: Opened, *gone: str) -> list[LogSegment]:
        dead = Dead(dict.fromkeys(gone or (GONE,), MessageId(1 << 62)))
        editions = editions_of(opened)
        new = [
            editions.give_back(segment, dead, lambda: None) for segment in opened.writer.view.sealed
        ]
        return [it for it in new if it is not None]

    def read(self, term: int) -> Sequence[Record]:
        opened = self.wal.open_now(CHANNEL, Term(term))
        found, at = list[Record](), opened.writer.bounds().first_id
        while batch := opened.reader.read(at, 2000):
            found += batch
            at = batch[-1].next_id
        opened.writer.close()
        return found

    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))


def test_an_opening_removes_old_editions_and_reads_the_newest(tmp_path: Path) -> None:
    log = Rewritten(tmp_path)
    kept = log.fill(crashed=True)
    before = len(log.logs())
    assert before > 8, "old editions are still there"
    assert log.read(2) == kept
    assert len(log.logs()) <= before // 2 + 2
    assert verify(tmp_path).healthy


def test_a_read_that_began_before_goes_on_with_the_new_edition(tmp_path: Path) -> None:
    log = Rewritten(tmp_path)
    kept = log.fill()
    opened = log.wal.open_now(CHANNEL, Term(2))
    view, first = opened.writer.view, opened.writer.view.sealed[0]
    opened.reader._view = lambda: view
    log.give_back(opened, KEPT)
    assert not (log.folder / first.name.log_file).exists()
    with pytest.raises(Corrupt, match="the segment file is missing"):
        opened.reader.read(MessageId(1), 100)
    views = chain((view,), repeat(opened.writer.view))
    opened.reader._view = lambda: next(views)
    [found] = opened.reader.read(MessageId(1), 1)
    assert found == next(it for it in kept if it.vchannel == GONE)


@pytest.mark.parametrize("index", [True, False])
def test_a_rewritten_segment_at_the_end_of_a_log_is_found_again(
    tmp_path: Path, index: bool
) -> None:
    """As in a backup, whose last file no later one seals."""
    log = Rewritten(tmp_path)
    kept = log.fill()
    *_, last = [it for it in log.logs() if it.name.count("-") == 3]
    name = SegmentName.of(last.name)
    assert name is not None
    for path in log.folder.iterdir():
        other = SegmentName.of(path.with_suffix(".log").name)
        newer = other is not None and other.base_id > name.base_id
        if newer or (path.suffix == ".index" and not index):
            path.unlink()
    found = log.read(2)
    assert found[-1].next_id > name.base_id
    assert list(found) == [it for it in kept if it.base_id < found[-1].next_id]


def test_damage_in_a_rewritten_segment_is_reported_and_skipped(tmp_path: Path) -> None:
    log = Rewritten(tmp_path)
    kept = log.fill()
    assert log.read(2) == kept
    first = log.logs()[0]
    data = bytearray(first.read_bytes())
    data[HEADER_BYTES + 30] ^= 0xFF
    first.write_bytes(data)
    assert [it.offset for it in verify(tmp_path).damages] == [HEADER_BYTES]
    with pytest.raises(Corrupt):
        log.read(3)
    skipping = Rewritten(tmp_path, skip_damage=True)
    left = skipping.read(4)
    assert left == [it for it in kept if it in left]
    assert len(left) >= len(kept) - 1


def test_a_damaged_segment_is_not_rewritten(tmp_path: Path) -> None:
    log = Rewritten(tmp_path)
    log.fill()
    opened = log.wal.open_now(CHANNEL, Term(2))
    segment = opened.writer.view.sealed[1]
    path = log.folder / segment.name.log_file
    data = bytearray(path.read_bytes())
    data[-1] ^= 0xFF
    path.write_bytes(data)
    editions = editions_of(opened)
    with pytest.raises(Corrupt):
        editions.give_back(segment, Dead({KEPT: MessageId(1 << 62)}), lambda: None)
    assert not list(log.folder.glob("*-000001.new"))
    assert segment in opened.writer.view.sealed


def test_gaps_are_shown_and_are_no_damage(tmp_path: Path) -> None:
    log = Rewritten(tmp_path)
    kept = log.fill()
    log.read(2)
    rows = list(dump(tmp_path))
    gone = [it for it in rows if it.given_back]
    assert sum(it.messages for it in gone) + 3 * len(kept) == 600
    report = verify(tmp_path)
    assert (report.records, report.messages) == (len(kept), 3 * len(kept))


def test_a_cut_inside_a_gap_ends_before_it(tmp_path: Path) -> None:
    log = Rewritten(tmp_path)
    kept = log.fill()
    log.read(2)
    for tick in range(10, 6000, 97):
        cut = cut_log(tmp_path, CHANNEL, TimeTick(tick - tick % 10 + 9))
        below = [it for it in kept if it.last_tick <= tick - tick % 10 + 9]
        assert cut.end.last_tick <= tick - tick % 10 + 9
        assert cut.end.next_id >= (below[-1].next_id if below else 1)
        above = [it for it in kept if it not in below]
        assert not above or cut.end.next_id <= above[0].base_id


def test_a_fenced_owner_rewrites_nothing() -> None:
    files = FaultyFiles()
    wal = SegmentedWal(files, SMALL, background=AtOnce(), salt=lambda: 1)
    old = wal.open_now(CHANNEL, Term(1))
    for at in range(1, 400, 40):
        old.writer.append(group(at, 10, messages=4, size=100))
    wal.open_now(CHANNEL, Term(2))
    steps = files.steps
    with pytest.raises(Fenced):
        editions_of(old).give_back(
            old.writer.view.sealed[0],
            Dead({"by-dev-rootcoord-dml_0_1v0": MessageId(1 << 62)}),
            lambda: None,
        )
    assert files.steps == steps, "it has changed nothing"


def test_a_segment_that_was_written_anew_since_the_folder_was_listed_is_no_damage(
    tmp_path: Path,
) -> None:
    log = Rewritten(tmp_path)
    log.fill()
    opened = log.wal.open_now(CHANNEL, Term(2))
    rows = dump(tmp_path)
    seen = [next(rows)]
    log.give_back(opened, KEPT)
    seen += list(rows)
    assert not [it for it in seen if it.damage]
    assert sum(it.messages for it in seen) == 600
    opened.writer.close()
    rows = dump(tmp_path)
    next(rows)
    missing = sorted(log.folder.glob("*.log"))[2]
    missing.unlink()
    assert [it.damage for it in rows if it.damage] == ["the segment file is missing"]


@pytest.mark.parametrize("kind", ["rename", "sync_folder"])
@pytest.mark.parametrize("comes", [False, True])
def test_after_a_failed_install_the_next_owner_reads_everything(kind: str, comes: bool) -> None:
    """`comes`: while the step fails. What is renamed by then belongs to it."""
    for nth in range(1, 30):
        files = FaultyFiles(seed=nth)
        wal = SegmentedWal(files, SMALL, background=AtOnce(), salt=lambda: 1)
        old = wal.open_now(CHANNEL, Term(1))
        written: list[Record] = []
        for at in range(1, 601, 3):
            vchannel = KEPT if at // 3 % 10 == 0 else GONE
            written.append(record(at, messages=3, size=100, vchannel=vchannel))
            old.writer.append(written[-1:])
        first, begun = old.writer.view.sealed[0], files.counts.get(kind, 0)
        files.faults[kind, begun + nth] = errno.EIO
        new: list[Opened] = []

        def rival(step: str, path: str) -> None:
            due = step == kind and files.counts.get(kind, 0) == begun + nth - 1  # noqa: B023
            if comes and due:
                files.on_step = lambda _kind, _path: None  # noqa: B023
                files.faults.clear()  # noqa: B023
                new.append(wal.open_now(CHANNEL, Term(2)))  # noqa: B023
                files.faults[kind, files.counts[kind] + 1] = errno.EIO  # noqa: B023

        files.on_step = rival
        with suppress(OSError, Fenced, WalError):
            editions_of(old).give_back(first, Dead({GONE: MessageId(1 << 62)}), lambda: None)
            break
        files.faults.clear()
        files.on_step = lambda _kind, _path: None
        for opened in (*new, wal.open_now(CHANNEL, Term(3))):
            found, at = list[Record](), opened.writer.bounds().first_id
            while batch := opened.reader.read(at, 2000):
                found += batch
                at = batch[-1].next_id
            kept = [it for it in written if it.vchannel == KEPT or it.base_id >= first.next_id]
            assert [it for it in found if it in kept] == kept
    else:
        raise AssertionError("each step of an install was to fail")


@pytest.mark.parametrize(("kind", "each"), [("rename", 1), ("sync_folder", 2)])
def test_a_disk_that_fails_again_and_again_gets_no_file_each_time(kind: str, each: int) -> None:
    files = FaultyFiles()
    opened = SegmentedWal(files, SMALL, background=AtOnce()).open_now(CHANNEL, Term(1))
    for at in range(1, 600):
        opened.writer.append([record(at, size=300, vchannel=KEPT if at % 10 else GONE)])
    editions, dead = editions_of(opened), Dead({GONE: MessageId(1 << 62)})
    first, second, *_ = opened.writer.view.sealed
    begun, before = files.counts.get(kind, 0), len(files.names)
    # The index of an edition has a sync of its own before.
    files.faults |= {(kind, begun + number): errno.EIO for number in range(each, 100, each)}
    for segment in (first, second, first, second):
        with pytest.raises(OSError, match="error"):
            editions.give_back(segment, dead, lambda: None)
    assert len(files.names) <= before + 2, "one edition and its index, if it was renamed"


def test_truncation_leaves_a_segment_alone_while_it_is_written_anew(tmp_path: Path) -> None:
    log = Rewritten(tmp_path)
    log.fill()
    opened = log.wal.open_now(CHANNEL, Term(2))
    writer, segments = opened.writer, opened.writer.view.sealed
    every = segments[-1].next_id, Retention(bytes_max=1), 0
    assert writer.pin(segments[1])
    assert writer.drop_segments(*every) == segments[:1]
    new = replace(segments[1], end=segments[1].end - 10)
    writer.adopt_edition(segments[1], new)
    writer.unpin()
    assert writer.drop_segments(*every) == (new, *segments[2:])
    assert not writer.pin(segments[2])
    dead = Dead({KEPT: MessageId(1 << 62)})
    assert editions_of(opened).give_back(segments[2], dead, lambda: None) is None


def test_a_full_disk_is_not_filled_to_the_brim_but_a_dead_segment_is_given_back() -> None:
    files = FaultyFiles()
    wal = SegmentedWal(files, replace(SMALL, segment_bytes=1 << 20), background=AtOnce())
    opened = wal.open_now(CHANNEL, Term(1))
    for at in range(1, 400):
        vchannel = KEPT if at % 2 else GONE
        opened.writer.append([record(at, size=2000, vchannel=vchannel)])
    segment = max(opened.writer.view.sealed, key=lambda it: it.size_bytes)
    files.capacity = sum(len(it.cached) for it in files.names.values()) + 20_000
    editions, half = editions_of(opened), Dead({GONE: MessageId(1 << 62)})
    with pytest.raises(OSError, match="kept for appends"):
        editions.give_back(segment, half, lambda: None)
    assert segment in opened.writer.view.sealed
    assert not [it for it in files.names if "-000001" in it]
    every = Dead(dict.fromkeys((KEPT, GONE), MessageId(1 << 62)))
    assert editions.give_back(segment, every, lambda: None) is not None


def test_a_reader_keeps_no_file_open_that_was_removed_while_it_opened_it(tmp_path: Path) -> None:
    log = Rewritten(tmp_path)
    log.fill()
    opened = log.wal.open_now(CHANNEL, Term(2))
    first, reader = opened.writer.view.sealed[0], opened.reader
    stale = opened.writer.view
    reader.read(MessageId(1), 100)
    open_before = reader.open_files
    log.give_back(opened, KEPT)
    copy = log.folder / first.name.log_file
    copy.write_bytes(b"as if it was opened just before it was removed")
    reader._file(first.name)
    assert first.name in {it.name for it in stale.sealed}
    assert reader.open_files == open_before - 1


def test_a_fenced_owner_that_misses_a_rewritten_file_says_so_and_reports_no_damage(
    tmp_path: Path,
) -> None:
    log = Rewritten(tmp_path)
    log.fill()
    old = log.wal.open_now(CHANNEL, Term(2))
    new = log.wal.open_now(CHANNEL, Term(3))
    log.give_back(new, KEPT)
    with pytest.raises(Fenced):
        old.reader.read(MessageId(1), 100)
    assert log.damages == []
