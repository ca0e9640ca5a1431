"""A cluster over hosts as the script starts it, the demo on made-up flights, and its end."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hosts.etcd_program import find_etcd
from hosts.kept_cluster import ClusterState, end_cluster, running_cluster, started
from java import find_java
from runs.cluster import show
from runs.hosts_demo.demo import told, totals_of, verdict

from tests.missing_part import missing_part

ROOT = Path(__file__).parents[2]
WITH_SPARK = bool(os.environ.get("TIDEMARK_CLUSTER_SPARK"))
"""A minute more, and 2 GB."""
WAYS: list[tuple[str, ...]] = [(), ("--loopback",)] if WITH_SPARK else [()]
UP_S_MAX, DEMO_S_MAX = 400, 500
DEMO = """
import sys
from pathlib import Path
import pyarrow as pa
from hosts.kept_cluster import running_cluster
from runs.hosts_demo.demo import play
from runs.hosts_demo.story import Story
from runs.quickstart import SCHEMA

folder, rows = Path(sys.argv[1]), range(5_000)
columns = {
    "carrier": ["UA" if it % 3 else "DL" for it in rows],
    "flight": [it % 97 for it in rows],
    "arr_delay": [None if it % 7 == 0 else it % 50 - 10 for it in rows],
}
columns = {it.name: columns.get(it.name, pa.nulls(len(rows), it.type)) for it in SCHEMA}
story = Story(folder, running_cluster(folder), print)
work = folder / "work"
work.mkdir()
sys.exit(play(story, pa.table(columns, schema=SCHEMA), work, pace_s=0.1))
"""


def environment(folder: Path) -> dict[str, str]:
    paths = [ROOT, ROOT / "scripts", ROOT / "broker" / "spark"]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")]),
        "CLUSTER_FOLDER": str(folder),
    }


def script(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "runs.cluster", *words],
        env=environment(folder), capture_output=True, text=True, timeout=UP_S_MAX, check=False,
    )  # fmt: skip


@contextmanager
def cluster(folder: Path, *words: str) -> Iterator[ClusterState]:
    """Skips where there is no etcd, no Java, or no jars of Kafka."""
    if find_etcd() is None or find_java() is None:
        missing_part("no etcd or no Java")
    spark = () if WITH_SPARK else ("--without-spark",)
    up = script(folder, "up", *spark, *words)
    try:
        if "cannot fetch" in up.stderr:
            missing_part(up.stderr)
        assert up.returncode == 0, up.stderr + up.stdout
        yield running_cluster(folder)
    finally:
        end_cluster(folder)


@pytest.mark.slow
@pytest.mark.parametrize("words", WAYS)
def test_all_flights_come_out_although_a_host_dies_and_a_link_is_cut(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    folder = tmp_path / "run"
    with cluster(folder, *words) as state:
        names = {it.name for it in state.processes}
        assert names >= {"coordinator-1", "coordinator-2", "node-1", "node-2", "node-3"}
        again = script(folder, "up")
        assert again.returncode == 1
        assert "a cluster runs here; end it first" in again.stderr
        done = subprocess.run(
            [*state.inside("driver"), sys.executable, "-c", DEMO, str(folder)],
            env=environment(folder), capture_output=True, text=True, timeout=DEMO_S_MAX,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        died = re.search(
            r"host ([ab]) dies, with coordinator-\d, node-\d; the leader was there", done.stdout
        )
        assert died is not None, done.stdout
        assert f"host {died[1]} is back; its processes serve" in done.stdout
        link = "where the leader is, to node host c is cut"
        assert (link in done.stdout) == bool(state.namespaces)
        assert "5,000 flights of 2 carriers" in done.stdout
        assert ("0 failed queries" in done.stdout) == WITH_SPARK
        assert "not a setting" not in (folder / "node-1.log").read_text()
        now = running_cluster(folder)
        ended = end_cluster(folder)
        assert {*ended} == {it.name for it in now.processes} | {"keeper"}
        assert not any(it.alive for it in [now.keeper, *now.processes])
    alone = script(folder, "demo")
    assert alone.returncode == 1
    assert "start one with: python3 scripts/cluster.py up" in alone.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--nodes", "9"), "--nodes must be 1 to 8, not 9"),
        (("--loopback", "--quorum", "3"), "--quorum 3 needs network namespaces"),
        (("--quorum", "2"), "invalid choice"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    up = script(tmp_path / "run", "up", *words)
    assert up.returncode in (1, 2)
    assert told in up.stderr
    assert not (tmp_path / "run" / "state.json").exists()


def test_the_command_that_is_shown_names_the_program_of_this_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = started("keeper", os.getpid())
    show(ClusterState(own, "a:1,b:1", "", {"driver": "tm1driver"}, {}, {}, ready=True))
    tidemark = Path(sys.executable).with_name("tidemark")
    shown = f"ip netns exec tm1driver {tidemark} health --server a:1,b:1\n"
    assert shown in capsys.readouterr().out


def test_a_number_that_differs_is_shown_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"carrier": ["UA", "UA", "DL"], "arr_delay": [3, None, -1]})
    sent = totals_of([table])
    assert sent == {"UA": (2, 1, 3), "DL": (1, 1, -1)}
    assert verdict(sent, {"read": sent, "copied": {**sent}}) == 0
    assert "3 flights of 2 carriers, read and copied" in capsys.readouterr().out
    assert verdict(sent, {"read": sent, "copied": {"UA": (2, 1, 3), "AA": (1, 0, 0)}}) == 1
    shown = capsys.readouterr().out
    assert shown.count("differs") == 2
    assert "2 of 2 carriers differ" in shown


def test_a_query_that_failed_is_told_and_fails_the_demo(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Although another one has copied the rest."""
    assert told([]) == 0
    assert capsys.readouterr().out == ""
    assert told(["[TIDEMARK_CONNECTION_LOST] no broker at [/x]"]) == 1
    shown = capsys.readouterr().out
    assert shown == "A query of Spark failed: [TIDEMARK_CONNECTION_LOST] no broker at [/x]\n"
