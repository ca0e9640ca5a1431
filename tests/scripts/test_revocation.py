"""`scripts/revocation.py`: what it measures, in its short form, and how it judges."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from runs import revocation
from runs.revocation import Streams

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("slowest_s", "kept"), [(1.99, True), (2.0, False)])
def test_each_round_has_to_end_in_time(slowest_s: float, kept: bool) -> None:
    assert revocation.told("nodes", 7, [0.1, slowest_s, 0.1]) is kept


@pytest.mark.parametrize(
    ("ended_s", "words"), [([5.5], "1 streams did not end"), ([4.9, 5.5], "before the revocation")]
)
def test_streams_that_end_early_or_never_are_no_measurement(
    ended_s: list[float], words: str
) -> None:
    found = Streams(ended_s=[(it, "Read") for it in ended_s])
    with pytest.raises(SystemExit, match=words):
        revocation.judged("nodes", 2, found, 5.0, 5.1)


@pytest.mark.parametrize("more", [[], ["--keys"]], ids=["token", "keys"])
def test_the_streams_of_every_kind_end_here_and_on_another_node(more: list[str]) -> None:
    paths = os.pathsep.join((str(ROOT), str(ROOT / "scripts")))
    options = ("--streams", "48", "--rounds", "1", "--nodes", "1")
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "runs.revocation", *options, *more],
        capture_output=True, text=True, timeout=200, check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )  # fmt: skip
    # 1 on a machine that is too busy to be in time.
    assert ended.returncode in (0, 1), ended.stderr
    for where in ("the process that answers", "other nodes"):
        (last,) = re.findall(
            rf"^48 streams on {where}: .* last [\d.]+ s \((.*)\)$", ended.stdout, re.M
        )
        kinds = [it.split()[0] for it in last.split(", ")]
        assert kinds == ["Append", "AssignmentDiscover", "Consume", "Join", "Produce", "Read"]
        assert f"48 streams on {where}, 1 rounds: the last one ended" in ended.stdout
