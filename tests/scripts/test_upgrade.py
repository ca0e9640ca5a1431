"""The cluster of an older release that gets this one, process after process, under load."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from environment import ROOT
from runs.upgrade import NoOlderCode, older_code

GUARD_S = 900.0
"""Against hanging only."""


def test_a_commit_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(NoOlderCode, match="commit 'no-such-commit' is not in the history"):
        older_code("no-such-commit", tmp_path / "older")
    assert not (tmp_path / "older").exists()


@pytest.mark.skipif((ROOT / ".git" / "shallow").exists(), reason="a clone without its history")
def test_nodes_then_coordinator_get_this_release_and_nothing_is_lost_doubled_or_refused() -> None:
    run = subprocess.run(
        [sys.executable, "-P", "-m", "runs.upgrade", "--orders", "1"],
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "scripts")))},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "node-1, then node-2, then coordinator: good" in run.stdout
