"""Starts a cluster and leaves it running, or passes flights through the one that runs."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from hosts.host_network import may_make_namespaces
from hosts.kept_cluster import (
    CLUSTER,
    ClusterState,
    NoCluster,
    end_cluster,
    read_state,
    running_cluster,
)
from rich.console import Console
from rich.table import Table

from runs.hosts_demo.seats import DRIVER, MORE_NODES

UP_S_MAX = 400.0
FOLDER = "CLUSTER_FOLDER"
"""A variable; nodes warn of one that begins as their settings do and is none."""
console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    """The exit code; 1 with a sentence on stderr."""
    parser = argparse.ArgumentParser(description="Start a cluster, or run the demo in it.")
    what = parser.add_subparsers(dest="what", required=True)
    up = what.add_parser("up", help="start the cluster, and leave it running")
    up.add_argument("--nodes", type=int, default=3, help="default: %(default)s")
    up.add_argument("--quorum", type=int, default=1, choices=(1, 3), help="Kafka nodes, and etcd's")
    up.add_argument("--loopback", action="store_true", help="no network namespaces")
    up.add_argument("--without-spark", action="store_true")
    demo = what.add_parser("demo", help="flights through the cluster that runs")
    demo.add_argument("--rows", type=int, default=0, help="the first so many; default: all")
    given = parser.parse_args()
    folder = Path(os.environ.get(FOLDER, CLUSTER))
    try:
        if given.what == "demo":
            return run_demo(folder, given.rows)
        if not 1 <= given.nodes <= 2 + len(MORE_NODES):
            parser.error(f"--nodes must be 1 to {2 + len(MORE_NODES)}, not {given.nodes}")
        start(folder, given)
    except NoCluster as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    return 0


def start(folder: Path, given: argparse.Namespace) -> None:
    """Start a cluster and show it. Raises NoCluster."""
    before = read_state(folder)
    if before is not None and before.keeper.alive:
        raise NoCluster("a cluster runs here; end it first: python3 scripts/cluster.py down")
    end_cluster(folder)  # what a keeper that was killed has left
    reason = "it was asked for" if given.loopback else may_make_namespaces()
    loopback = bool(reason)
    if loopback and given.quorum > 1:
        raise NoCluster(f"--quorum {given.quorum} needs network namespaces: {reason}")
    if loopback:
        console.print(f"All hosts are loopback, because {reason}: no link can be cut.")
    _empty(folder)
    words = [str(folder), given.nodes, given.quorum, loopback, not given.without_spark]
    console.print(f"Starting; logs are in {folder}")
    with (folder / "keeper.log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "runs.hosts_demo.keeper", json.dumps(words)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until_s = time.monotonic() + UP_S_MAX
        while time.monotonic() < until_s:
            state = read_state(folder)
            if state is not None and state.ready:
                show(state)
                return
            if keeper.poll() is not None:
                break
            time.sleep(0.1)
    except KeyboardInterrupt:
        end_cluster(folder)
        raise
    end_cluster(folder)
    said = (folder / "keeper.log").read_text().strip().splitlines() or ["it said nothing"]
    raise NoCluster(f"it does not start: {said[-1].removeprefix('cluster: ')}")


def show(state: ClusterState) -> None:
    """Hosts, processes, and how to use them."""
    table = Table("host", "address", "processes")
    for host, some in state.hosts.items():
        told = ", ".join([f"{it.name} ({it.pid})" for it in some]) or "free, for clients"
        table.add_row(host, state.addresses[host], told)
    console.print(table)
    inside = " ".join(state.inside(DRIVER))
    # The one of this environment: a shell finds no other, and a namespace would run what it finds.
    tidemark = Path(sys.executable).with_name("tidemark")
    console.print(f"{inside} {tidemark} health --server {state.servers}".strip())
    console.print("then: python3 scripts/cluster.py demo | down")


def run_demo(folder: Path, rows: int) -> int:
    """The demo, as a process on a host of its own. Raises NoCluster."""
    state = running_cluster(folder)
    if not state.ready:
        raise NoCluster("the cluster is still starting")
    command = [sys.executable, "-m", "runs.hosts_demo.demo", str(folder), str(rows)]
    return subprocess.run([*state.inside(DRIVER), *command], check=False).returncode


def _empty(folder: Path) -> None:
    """Data of an earlier cluster would not fit to this one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


if __name__ == "__main__":
    sys.exit(main())
