"""Lock files of coordinators: who is seen, and when somebody is gone."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.app.leading.folder_candidates import COORDINATORS_MAX, candidate_of
from broker.data_folder import DataFolder, DataFolderError

HOLD = """
import sys
from pathlib import Path
from broker.app.leading.folder_candidates import candidate_of
from broker.data_folder import DataFolder
with candidate_of(DataFolder(Path(sys.argv[1])), "other:1") as candidates:
    print(candidates.own.name, flush=True)
    sys.stdin.read()
"""


async def test_those_that_run_see_each_other_until_they_end(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    with candidate_of(folder, "a:1") as first:
        assert not await first.has_ended(first.own.name)
        with candidate_of(folder, "b:1") as second:
            assert first.own.name != second.own.name
            assert await first.running() == [first.own, second.own] == await second.running()
            assert not await first.has_ended(second.own.name)
        assert await first.has_ended(second.own.name)
        assert await first.running() == [first.own]
        with candidate_of(folder, "b:1") as third:
            assert await first.has_ended(second.own.name), "another process has its place now"
            assert not await first.has_ended(third.own.name)


async def test_a_leader_of_no_name_had_the_folder_alone_so_it_has_ended(tmp_path: Path) -> None:
    with candidate_of(DataFolder(tmp_path), "a:1") as first:
        assert await first.has_ended("")


class OtherProcess:
    """Another candidate of the folder, at `other:1`."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", HOLD, str(folder)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.name = self.process.stdout.readline().strip()

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


async def test_a_paused_process_runs_and_a_killed_one_has_ended(tmp_path: Path) -> None:
    with candidate_of(DataFolder(tmp_path), "a:1") as first, ExitStack() as ends:
        other = OtherProcess(tmp_path)
        ends.callback(other.kill)
        other.pause()
        assert not await first.has_ended(other.name)
        assert [it.address for it in await first.running()] == ["a:1", "other:1"]
        other.kill()
        assert await first.has_ended(other.name)


def test_one_too_many_is_refused(tmp_path: Path) -> None:
    with ExitStack() as held:
        for number in range(COORDINATORS_MAX):
            held.enter_context(candidate_of(DataFolder(tmp_path), f"a:{number + 1}"))
        with (
            pytest.raises(DataFolderError, match="has 8 coordinators, which is the most"),
            candidate_of(DataFolder(tmp_path), "a:9"),
        ):
            pass


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    with (
        pytest.raises(DataFolderError, match="cannot use data folder"),
        candidate_of(DataFolder(tmp_path / "missing"), "a:1"),
    ):
        pass


async def test_an_entry_that_cannot_be_read_is_of_nobody_known(tmp_path: Path) -> None:
    with candidate_of(DataFolder(tmp_path), "a:1") as first:
        (tmp_path / "coordinator-0.lock").write_text("{")
        assert [it.name for it in await first.running()] == [""]
