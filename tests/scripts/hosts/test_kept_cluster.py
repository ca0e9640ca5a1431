"""What a cluster says of itself, and that it is ended by the ids of its processes alone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts.kept_cluster import (
    ClusterState,
    NoCluster,
    Process,
    ask_keeper,
    began,
    end_cluster,
    read_state,
    running_cluster,
    started,
    write_state,
)

SLEEPS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
WITH_CHILD = (
    "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()'], stdin=0);"
    " print('up', flush=True); sys.stdin.read()"
)
GUARD_S = 60


@pytest.fixture
def other() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(SLEEPS, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    own = started("keeper", os.getpid())
    state = ClusterState(own, "a:1", "spark://b:2", {"a": "tm1a"}, {"a": "10.0.0.1"}, {"a": [own]})
    assert read_state(tmp_path) is None
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert running_cluster(tmp_path) == state
    assert state.inside("a") == ["ip", "netns", "exec", "tm1a"]
    assert state.inside("b") == []
    assert state.processes == [own]


def test_without_a_keeper_there_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match=r"start one with: python3 scripts/cluster\.py up"):
        running_cluster(tmp_path)
    write_state(tmp_path, ClusterState(Process("keeper", os.getpid(), 1)))
    with pytest.raises(NoCluster, match="no cluster runs here"):
        running_cluster(tmp_path)
    with pytest.raises(NoCluster, match="does not answer"):
        ask_keeper(tmp_path, kill="a")
    assert end_cluster(tmp_path) == []
    assert end_cluster(tmp_path) == []


def test_what_a_killed_keeper_has_left_is_ended_and_nobody_else(
    tmp_path: Path, other: "subprocess.Popen[bytes]"
) -> None:
    command = [sys.executable, "-c", WITH_CHILD]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, start_new_session=True, **pipes) as left:  # type: ignore[call-overload]
        assert left.stdout.readline() == b"up\n"
        of_left = started("node-1", left.pid)
        # Its id was taken by a process that is not ours.
        reused = Process("node-2", other.pid, began(other.pid) - 1)
        keeper = Process("keeper", os.getpid(), 1)
        write_state(tmp_path, ClusterState(keeper, hosts={"a": [of_left, reused]}))
        assert end_cluster(tmp_path) == ["node-1"]
        assert left.wait(GUARD_S) == -signal.SIGTERM
        assert left.stdout.read() == b"", "its child has ended, too"
    assert other.poll() is None
    assert read_state(tmp_path) is None
