"""`scripts/fuzz.py`: what it says of targets that hold, and of one that does not."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs.fuzz import Figures, Watched

ROOT = Path(__file__).resolve().parents[2]


def fuzzed(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "runs.fuzz", "--seeded", "--out", str(out), *options]
    paths = os.pathsep.join((str(ROOT), str(ROOT / "scripts")))
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )


def test_each_target_has_a_line_and_all_together_one(tmp_path: Path) -> None:
    ended = fuzzed(tmp_path, "--targets", "frames,answers", "--inputs", "200")
    assert ended.returncode == 0, ended.stderr
    assert [line.split()[:3] for line in ended.stdout.splitlines()[1:3]] == [
        ["frames", "seed", "200"],
        ["answers", "seed", "200"],
    ]
    assert "400 inputs" in ended.stdout
    assert "0 defects" in ended.stdout


def test_a_target_that_there_is_not_is_named(tmp_path: Path) -> None:
    ended = fuzzed(tmp_path, "--targets", "frames,cookies")
    assert ended.returncode == 2
    assert "cookies" in ended.stderr


def test_an_input_that_raises_is_saved_and_reported(tmp_path: Path) -> None:
    def check(data: bytes) -> None:
        if data == b"bad":
            raise KeyError("of the test")

    options = argparse.Namespace(out=tmp_path, inputs=10)
    watched = Watched(check, Figures("mine", "seed"), options)
    watched(b"good")
    with pytest.raises(KeyError):
        watched(b"bad")
    assert (tmp_path / "mine.input").read_bytes() == b"bad"
    told = json.loads((tmp_path / "mine.json").read_text())
    assert told["inputs"] == 1
    assert "KeyError" in told["defect"]
