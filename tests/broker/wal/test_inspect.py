"""Inspecting stored logs: dump and verify."""

from pathlib import Path

import pytest

from broker.model.ids import PChannelName, Term
from broker.wal.inspect import dump, verify
from broker.wal.segmented import OsFiles, SegmentedSettings, SegmentedWal
from broker.wal.segmented.segmented_wal import Opened
from tests.broker.wal.faulty_files import AtOnce
from tests.broker.wal.some_records import group

SMALL = SegmentedSettings(segment_bytes=8192, first_segment_bytes=8192)


def filled(root: Path, channel: str = "c") -> Opened:
    wal = SegmentedWal(OsFiles(root), SMALL, background=AtOnce())
    opened = wal.open_now(PChannelName(channel), Term(1))
    for at in range(1, 61, 6):
        opened.writer.append(group(at, 2, size=300))
    return opened


def files_of(path: Path) -> dict[Path, tuple[bytes, int]]:
    return {f: (f.read_bytes(), f.stat().st_mtime_ns) for f in path.rglob("*") if f.is_file()}


@pytest.mark.parametrize("closed", [False, True])
def test_a_log_is_dumped_record_by_record_and_left_as_it_is(tmp_path: Path, closed: bool) -> None:
    opened = filled(tmp_path)
    if closed:
        opened.writer.close()
    before = files_of(tmp_path)
    rows = list(dump(tmp_path / "c"))
    assert [row.base_id for row in rows] == list(range(1, 61, 3))
    assert {(r.term, r.messages, r.kind, r.body_bytes, r.damage) for r in rows} == {
        (1, 3, 2, 900, "")
    }
    assert [row.group_id for row in rows[:4]] == [1, 1, 7, 7]
    report = verify(tmp_path)
    assert report.healthy
    assert (report.logs, report.records, report.messages) == (1, 20, 60)
    assert report.size_bytes == opened.writer.bounds().size_bytes
    assert files_of(tmp_path) == before


def test_one_segment_file_may_be_looked_at_alone(tmp_path: Path) -> None:
    filled(tmp_path)
    first, *others = sorted((tmp_path / "c").glob("*.log"))
    assert len(others) > 2
    rows = list(dump(first))
    assert 0 < len(rows) < 20
    assert {row.file for row in rows} == {f"c/{first.name}"}
    assert verify(first).segments == 1


def test_each_damage_is_reported_with_file_and_offset_and_the_rest_is_shown(tmp_path: Path) -> None:
    filled(tmp_path)
    filled(tmp_path, "d")
    good = list(dump(tmp_path / "c"))
    first, *_, last = sorted((tmp_path / "c").glob("*.log"))
    for path, row in ((first, good[1]), (last, next(r for r in good if last.name in r.file))):
        with path.open("r+b") as file:
            file.seek(row.offset + 100)
            file.write(b"!")
    report = verify(tmp_path)
    assert not report.healthy
    wanted = {(good[1].file, good[1].offset), (f"c/{last.name}", 4096)}
    assert {(row.file, row.offset) for row in report.damages} == wanted
    assert len(report.damages) == 2
    assert report.logs == 2
    assert report.records == 38
    assert len([row for row in dump(tmp_path / "c") if row.damage]) == 2


def test_an_unknown_version_is_a_damage_that_names_both(tmp_path: Path) -> None:
    filled(tmp_path)
    path = max((tmp_path / "c").glob("*.log"))
    with path.open("r+b") as file:
        file.seek(8)
        file.write(b"\x05")
    [damage] = verify(tmp_path).damages
    assert damage.damage == "format version 5; this program reads version 2"


def test_a_path_without_a_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no log here"):
        list(dump(tmp_path))
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "nowhere")
