"""`scripts/neighbours.py`: what it measures, in its short form, and how it judges."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from runs import neighbours
from runs.neighbours import Noticed

ROOT = Path(__file__).resolve().parents[2]


def noticed(rate: int, slowest_ms: float) -> Noticed:
    return Noticed(1.0, [1.0] * (rate - rate // 50) + [slowest_ms] * (rate // 50), [1.0])


@pytest.mark.parametrize(
    ("during", "exit_code"),
    [
        (noticed(200, 10.0), 0),
        (noticed(180, 20.0), 0),
        (noticed(179, 10.0), 1),
        (noticed(200, 20.1), 1),
    ],
)
def test_a_neighbour_has_to_keep_its_rate_and_its_p99(during: Noticed, exit_code: int) -> None:
    assert neighbours.verdict(noticed(200, 10.0), during, "is loud") == exit_code


def test_both_tenants_are_measured_and_the_loud_one_gets_less_than_it_asks_for() -> None:
    paths = os.pathsep.join((str(ROOT), str(ROOT / "scripts")))
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "runs.neighbours", "--seconds", "0.5", "--rounds", "1"],
        capture_output=True, text=True, timeout=200, check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    assert ended.returncode in (0, 1), ended.stderr
    said = ended.stdout
    told = re.search(r"asked for ([\d.]+) MiB/s and got ([\d.]+) MiB/s, with a limit of 2", said)
    assert told is not None, said + ended.stderr
    assert 0.0 <= float(told[2]) < float(told[1])
    for row in ("before", "meanwhile"):
        (rate,) = re.findall(rf"^{row} +([\d.]+) +[\d.]+ +[\d.na]+$", said, re.MULTILINE)
        assert float(rate) > 0.0
