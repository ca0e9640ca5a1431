"""The files of an audit: rotation by size and number, and what failures leave behind."""

import errno
import os
import stat
from collections import deque
from pathlib import Path

import pytest

from broker.app.audit.audit_files import AuditFiles, AuditLimits

LINE = b"0123456789abcde\n"


def files_of(folder: Path, bytes_max: int = 64, files_max: int = 3) -> AuditFiles:
    return AuditFiles(folder / "audit" / "node-1.jsonl", AuditLimits(bytes_max, files_max))


def numbered(*numbers: int) -> deque[bytes]:
    return deque([b"%014d.\n" % number for number in numbers])


def kept(folder: Path) -> dict[str, list[int]]:
    found = sorted((folder / "audit").iterdir(), key=lambda it: it.name)
    return {it.name: [int(line[:14]) for line in it.read_text().split()] for it in found}


def test_lines_fill_a_file_then_the_next_and_the_oldest_file_goes(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    for number in range(4):
        files.append(numbered(number))
    assert kept(tmp_path) == {"node-1.jsonl": [0, 1, 2, 3]}
    files.append(numbered(*range(4, 14)))
    assert kept(tmp_path) == {
        "node-1.jsonl": [12, 13],
        "node-1.jsonl.1": [8, 9, 10, 11],
        "node-1.jsonl.2": [4, 5, 6, 7],
    }
    files.close()


def test_fewer_files_are_kept_after_their_number_was_lowered(tmp_path: Path) -> None:
    files = files_of(tmp_path, files_max=9)
    files.append(numbered(*range(30)))
    assert len(kept(tmp_path)) == 8
    files.limits = AuditLimits(64, 2)
    files.append(numbered(*range(30, 33)))
    assert kept(tmp_path) == {"node-1.jsonl": [32], "node-1.jsonl.1": [28, 29, 30, 31]}
    files.close()


def test_a_line_above_the_size_of_a_file_gets_one_of_its_own(tmp_path: Path) -> None:
    files = files_of(tmp_path, bytes_max=20)
    files.append(deque([b"0" * 100 + b"\n", LINE, b"1" * 100 + b"\n"]))
    sizes = [it.stat().st_size for it in sorted((tmp_path / "audit").iterdir())]
    assert sizes == [101, 16, 101]
    files.close()


def test_another_process_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    for number in range(3):
        files = files_of(tmp_path)
        files.append(numbered(number))
        files.sync()
        files.close()
        files.close()
    assert kept(tmp_path) == {"node-1.jsonl": [0, 1, 2]}


def test_files_of_other_processes_and_strangers_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    others = ["node-10.jsonl", "node-1.jsonl.gz", "node-1.jsonl.x1", "single.jsonl.1"]
    for name in others:
        (tmp_path / "audit" / name).write_text("")
    files = files_of(tmp_path)
    files.append(numbered(*range(40)))
    files.close()
    assert set(others) < kept(tmp_path).keys()


def test_only_the_owner_may_read_them(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    files.append(numbered(1))
    files.close()
    file = tmp_path / "audit" / "node-1.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_half_a_line_of_a_power_cut_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    files = files_of(tmp_path, bytes_max=1000)
    files.append(numbered(1))
    files.close()
    file = tmp_path / "audit" / "node-1.jsonl"
    with file.open("ab") as torn:
        torn.write(b'{"time":"2026-')
    files.append(numbered(2))
    files.close()
    assert file.read_bytes().split(b"\n") == [
        b"00000000000001.", b'{"time":"2026-', b"00000000000002.", b"",
    ]  # fmt: skip


def test_a_file_that_was_moved_or_removed_is_followed_by_a_new_one(tmp_path: Path) -> None:
    files = files_of(tmp_path, bytes_max=1000)
    file = tmp_path / "audit" / "node-1.jsonl"
    files.append(numbered(1))
    file.rename(tmp_path / "moved")
    files.append(numbered(2))
    assert kept(tmp_path) == {"node-1.jsonl": [2]}
    file.unlink()
    file.parent.rmdir()
    files.append(numbered(3))
    assert kept(tmp_path) == {"node-1.jsonl": [3]}
    files.close()


def test_a_full_disk_leaves_the_lines_with_the_caller_and_no_part_of_one(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    (tmp_path / "audit").mkdir()
    file = tmp_path / "audit" / "node-1.jsonl"
    os.mknod(file, stat.S_IFCHR | 0o600, Path("/dev/full").stat().st_rdev)
    lines = numbered(1, 2)
    with pytest.raises(OSError, match="No space left") as refused:
        files.append(lines)
    assert refused.value.errno == errno.ENOSPC
    assert lines == numbered(1, 2)
    file.unlink()
    files.append(lines)
    assert not lines
    assert kept(tmp_path) == {"node-1.jsonl": [1, 2]}
    files.close()


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    (tmp_path / "audit").mkdir()
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "audit" / "node-1.jsonl").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        files.append(numbered(1))
    assert victim.read_text() == "kept"
