"""A data folder belongs to one process, survives kill -9 of it, and names what it cannot read."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker.data_folder import DataFolderError, hold

HOLDER = (
    "import sys, pathlib\n"
    "from broker.data_folder import hold\n"
    "with hold(pathlib.Path(sys.argv[1])):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)


def start_holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)
    process.communicate(timeout=60)


def test_a_second_process_is_refused_and_told_the_pid_of_the_first(tmp_path: Path) -> None:
    holder = start_holder(tmp_path)
    try:
        with (
            pytest.raises(DataFolderError, match=f"in use by process {holder.pid}"),
            hold(tmp_path),
        ):
            pass
    finally:
        end(holder, signal.SIGTERM)


def test_a_killed_holder_leaves_the_folder_free(tmp_path: Path) -> None:
    end(start_holder(tmp_path), signal.SIGKILL)
    with hold(tmp_path) as folder:
        assert (tmp_path / "tidemark.lock").read_text().strip() == str(os.getpid())
        assert folder.log.parent == tmp_path


def test_a_folder_of_another_layout_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    (tmp_path / "format.json").write_text(json.dumps({"layout": 7}))
    told = r"layout version 7; this release reads version 1"
    with pytest.raises(DataFolderError, match=told), hold(tmp_path):
        pass


@pytest.mark.parametrize("text", ["", "{}", "[]", "no json"])
def test_a_damaged_format_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "format.json").write_text(text)
    with pytest.raises(DataFolderError, match=r"format\.json"), hold(tmp_path):
        pass


def test_a_path_that_is_a_file_is_named(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("x")
    with pytest.raises(DataFolderError, match="cannot use data folder"), hold(taken):
        pass


def test_a_folder_can_be_held_again_after_it_was_let_go(tmp_path: Path) -> None:
    for _ in range(2):
        with hold(tmp_path):
            assert json.loads((tmp_path / "format.json").read_text()) == {"layout": 1}


def test_a_pid_that_the_disk_has_no_room_for_keeps_nobody_from_starting(tmp_path: Path) -> None:
    (tmp_path / "tidemark.lock").symlink_to("/dev/full")
    with hold(tmp_path) as folder:
        assert folder.root == tmp_path
