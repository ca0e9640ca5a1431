"""Files that go away while a backup links them: none is missing in the middle of the copy."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.backup.backup_failed import BackupFailed
from broker.backup.held_log import HeldLog, names_in

CHANNEL = "by-dev-rootcoord-dml_0"


class Listing:
    """Lists a folder, after which retention removes the next of these files."""

    def __init__(self, *removed: str) -> None:
        self._removed = list(removed)

    def __call__(self, folder: Path) -> list[str]:
        names = sorted(names_in(folder))
        if self._removed:
            (folder / self._removed.pop(0)).unlink(missing_ok=True)
        return names


def made(tmp_path: Path, names: Sequence[str]) -> Path:
    folder = tmp_path / CHANNEL
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(name)
    return folder


def linked(held: HeldLog) -> list[str]:
    return sorted(names_in(held.folder / CHANNEL))


def test_a_file_that_went_away_makes_the_first_links_start_anew(tmp_path: Path) -> None:
    made(tmp_path, ["1.log", "2.log", "3.log"])
    with HeldLog(tmp_path, Listing("1.log")) as held:
        held.link_from_start([CHANNEL])
        assert linked(held) == ["2.log", "3.log"]


def test_a_linked_file_may_go_away_and_what_is_new_is_linked_all_the_same(tmp_path: Path) -> None:
    folder = made(tmp_path, ["1.log", "2.log"])
    with HeldLog(tmp_path, Listing("none", "1.log")) as held:
        held.link_from_start([CHANNEL])
        made(tmp_path, ["3.log"])
        held.link_new([CHANNEL])
        assert linked(held) == ["1.log", "2.log", "3.log"]
        assert not (folder / "1.log").exists()


def test_a_backup_fails_when_a_new_file_went_away_before_it_had_a_link(tmp_path: Path) -> None:
    made(tmp_path, ["1.log"])
    with HeldLog(tmp_path, Listing("none", "2.log")) as held:
        held.link_from_start([CHANNEL])
        made(tmp_path, ["2.log", "3.log"])
        with pytest.raises(BackupFailed, match=r"removed 2\.log, which was new"):
            held.link_new([CHANNEL])


def test_a_held_segment_that_is_written_anew_meanwhile_is_not_linked_again(tmp_path: Path) -> None:
    first, second, third = (f"{number:020d}-0000000001" for number in (1, 50, 90))
    edition, older = f"{first}-0000000001-000001", f"{second}-0000000001-000001"
    made(tmp_path, [f"{first}.log", f"{older}.log"])
    with HeldLog(tmp_path) as held:
        held.link_from_start([CHANNEL])
        # Something was dropped or purged, and the backup will not say so.
        newer = f"{second}-0000000001-000002"
        made(
            tmp_path, [f"{it}{suffix}" for it in (edition, newer) for suffix in (".log", ".index")]
        )
        made(tmp_path, [f"{first}.index", f"{third}.log"])
        held.link_new([CHANNEL])
        assert linked(held) == sorted(
            [f"{first}.log", f"{first}.index", f"{older}.log", f"{third}.log"]
        )


def test_a_backup_fails_when_a_new_segment_was_written_anew_before_it_had_a_link(
    tmp_path: Path,
) -> None:
    first, second = (f"{number:020d}-0000000001" for number in (1, 50))
    made(tmp_path, [f"{first}.log"])
    with HeldLog(tmp_path) as held:
        held.link_from_start([CHANNEL])
        # It may lack messages up to the cut because of newer ones behind it.
        made(tmp_path, [f"{second}-0000000001-000001.log"])
        with pytest.raises(BackupFailed, match=f"{second}, which was new, was written anew"):
            held.link_new([CHANNEL])


def test_an_index_that_went_away_is_not_missed(tmp_path: Path) -> None:
    made(tmp_path, ["1.log"])
    with HeldLog(tmp_path, Listing("none", "1.index")) as held:
        held.link_from_start([CHANNEL])
        made(tmp_path, ["1.index", "2.log"])
        held.link_new([CHANNEL])
        assert linked(held) == ["1.log", "2.log"]


def test_files_that_change_all_the_time_are_given_up(tmp_path: Path) -> None:
    names = [f"{number:03d}.log" for number in range(200)]
    made(tmp_path, names)
    with (
        HeldLog(tmp_path, Listing(*names)) as held,
        pytest.raises(BackupFailed, match="changes all the time"),
    ):
        held.link_from_start([CHANNEL])
