"""Restarts each process of a cluster of an older release with this release, under load.

A coordinator and two nodes share a folder. In one run the nodes come first, in the other the
coordinator. A program of this release appends, reads and works in a group meanwhile. At the end
each acknowledged message must be there once, for the reader, for the group, and for a client of
the older release.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from environment import ROOT
from rich.console import Console
from rich.table import Table

from broker.client import Client, Deadlines, TidemarkError, connect
from runs.failover import whole
from runs.failover_clusters import free_port

OLDER = "8dc815a8"
"""The last commit before the log could be in Kafka and the metadata in etcd."""
PARTS = ("actors", "broker", "schemas")
NAME, GROUP = "upgrade", "workers"
NODES = ("node-1", "node-2")
ORDERS = ((*NODES, "coordinator"), ("coordinator", *NODES))
STOP_S, CHECK_S = 60.0, 300.0
POLL_S = 0.05
BESIDE_S = 1.0
"""So long the older and the newer processes run beside each other after each restart."""
PATIENT = Deadlines(connect_s=60.0, append_s=120.0, call_s=60.0)
"""A busy machine starts a process in half a minute; users' programs wait as they like."""


class NoOlderCode(Exception):
    """The older release cannot be had; the message is for the person at the terminal."""


def older_code(commit: str, folder: Path) -> Path:
    """The packages of that commit, in `folder`. Raises NoOlderCode."""
    git = ["git", "-C", str(ROOT), "archive", "--format=tar", commit, *PARTS]
    archive = subprocess.run(git, capture_output=True, check=False)
    if archive.returncode:
        said = archive.stderr.decode(errors="replace").strip()
        raise NoOlderCode(
            f"commit {commit!r} is not in the history of {ROOT}: {said}; name one with --from, or"
            " fetch the whole history (git fetch --unshallow)"
        )
    folder.mkdir(parents=True)
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


class Processes:
    """The coordinator and the nodes on one folder, each of the older release or of this one."""

    def __init__(self, folder: Path, older: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._older = older
        self._log = (folder / "log").open("ab")
        place = ("--data-dir", str(folder / "data"))
        self._arguments: dict[str, tuple[str, ...]] = {
            "coordinator": ("coordinator", *place, "--listen", self.address)
        }
        for number, name in enumerate(NODES, 1):
            options = ("--node-id", str(number), "--coordinator", self.address)
            self._arguments[name] = ("node", *options, *place, "--listen", "127.0.0.1:0")
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *, older: bool = False) -> None:
        """Returns when it serves. Raises SystemExit with the place of its log otherwise."""
        self._running[name] = process = subprocess.Popen(
            [sys.executable, "-m", "broker", *self._arguments[name]],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=self.variables(older=older),
            cwd=self._older,
        )
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not line.startswith("tidemark ready"):
            log = Path(self._log.name).read_text()
            raise SystemExit(f"{name} did not start: {line}\n{log[-4000:]}")

    def upgrade(self, name: str) -> None:
        """Stop the older one as a service manager does, and start the newer one."""
        process = self._running[name]
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_S)
        self.start(name)

    def variables(self, *, older: bool) -> dict[str, str]:
        """The environment in which `python -m broker` is the older release, or this one."""
        paths = str(self._older if older else ROOT)
        return os.environ | {"PYTHONPATH": paths, "TIDEMARK_PCHANNELS": "4"}

    def kill(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()
        self._log.close()


@contextmanager
def processes(folder: Path, older: Path) -> Iterator[Processes]:
    """All of the older release at first."""
    folder.mkdir()
    those = Processes(folder, older)
    try:
        for name in ("coordinator", *NODES):
            those.start(name, older=True)
        yield those
    finally:
        those.kill()


@dataclass(slots=True)
class Load:
    """What one program appended, read and acknowledged."""

    log: Client
    sent: int = 0
    landed: set[bytes] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    read: Counter[bytes] = field(default_factory=Counter)
    worked: Counter[bytes] = field(default_factory=Counter)
    longest_s: float = 0.0
    stopping: bool = False
    stopped: anyio.Event = field(default_factory=anyio.Event)
    """The last append was answered."""

    async def append(self) -> None:
        while not self.stopping:
            payload, began_s = b"%d" % self.sent, time.monotonic()
            self.sent += 1
            try:
                await self.log.append(NAME, payload, key=payload)
                self.landed.add(payload)
            except TidemarkError as error:
                self.errors.append(f"{type(error).__name__}: {error}")
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        self.stopped.set()

    async def consume(self) -> None:
        async for batch in self.log.read(NAME, start="all"):
            self.read.update(it.payload for it in batch.messages)

    async def work(self) -> None:
        async with self.log.group(GROUP).join(NAME) as member:
            async for batch in member:
                self.worked.update(it.payload for it in batch.messages)
                with suppress(TidemarkError):  # then they come again, or it was stored
                    await batch.ack()

    async def until_all_came(self) -> None:
        with anyio.move_on_after(CHECK_S):
            while not self.landed <= self.read.keys() & self.worked.keys():  # noqa: ASYNC110
                await anyio.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one order of restarts."""

    waits_s: dict[str, float]
    appended: int
    errors: tuple[str, ...]
    missing: int
    doubled: int
    older_client: int

    @property
    def good(self) -> bool:
        return not (self.errors or self.missing or self.doubled) and (
            self.older_client == self.appended
        )


async def upgraded(those: Processes, order: tuple[str, ...]) -> Outcome:
    """Restart each in this order, under load."""
    waits_s: dict[str, float] = {}
    async with connect(those.address, deadlines=PATIENT) as log, anyio.create_task_group() as tasks:
        await whole(log, len(NODES))
        await log.collections.create(NAME, shards=4)
        await log.group(GROUP).create(NAME, start="all")
        load = Load(log)
        for program in (load.append, load.consume, load.work):
            tasks.start_soon(program)
        await anyio.sleep(BESIDE_S)
        for name in order:
            load.longest_s = 0.0
            await anyio.to_thread.run_sync(those.upgrade, name)
            await whole(log, len(NODES))
            await anyio.sleep(BESIDE_S)
            waits_s[name] = load.longest_s
        load.stopping = True
        await load.stopped.wait()
        await load.until_all_came()
        tasks.cancel_scope.cancel()
    missing = len(load.landed - load.read.keys()) + len(load.landed - load.worked.keys())
    doubled = sum(count > 1 for count in load.read.values())
    older = await anyio.to_thread.run_sync(read_by_older_client, those)
    return Outcome(waits_s, len(load.landed), tuple(load.errors), missing, doubled, older)


def read_by_older_client(those: Processes) -> int:
    """How many messages the older release's CLI reads from the newer cluster."""
    options = ("--from", "all", "--until-now", "--count", "--server", those.address)
    read = subprocess.run(
        [sys.executable, "-m", "broker", "consume", NAME, *options],
        capture_output=True,
        text=True,
        timeout=CHECK_S,
        check=False,
        env=those.variables(older=True),
        cwd=Path(those.variables(older=True)["PYTHONPATH"]),
    )
    if read.returncode:
        print(read.stderr, file=sys.stderr)
    return int(read.stdout.strip() or 0)


def table_of(order: tuple[str, ...], outcome: Outcome) -> Table:
    """What happened at each restart, and whether all is well."""
    table = Table(title=f"{', then '.join(order)}: {'good' if outcome.good else 'NOT GOOD'}")
    table.add_column("restarted with this release")
    table.add_column("longest wait of an append", justify="right")
    for name in order:
        table.add_row(name, f"{outcome.waits_s[name]:.2f} s")
    table.caption = (
        f"{outcome.appended} appended, {len(outcome.errors)} refused, {outcome.missing} missing,"
        f" {outcome.doubled} doubled; the older client reads {outcome.older_client}"
    )
    return table


def main() -> int:
    """Print a table for each order; 0 when nothing was lost, doubled or refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="commit", default=OLDER, help="commit of the older release")
    parser.add_argument("--orders", type=int, default=len(ORDERS), help="how many orders, 1 or 2")
    arguments = parser.parse_args()
    console, good = Console(), True
    with tempfile.TemporaryDirectory(prefix="upgrade-") as place:
        try:
            older = older_code(arguments.commit, Path(place) / "older")
        except NoOlderCode as reason:
            raise SystemExit(str(reason)) from None
        for number, order in enumerate(ORDERS[: arguments.orders]):
            with processes(Path(place) / str(number), older) as those:
                outcome = anyio.run(upgraded, those, order)
            console.print(table_of(order, outcome))
            for error in outcome.errors[:5]:
                print(error)
            good &= outcome.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
