"""A coordinator and its nodes as processes of their own, each behind a link; who dies comes back.

What they say goes to files beside the data, through us: a quota on their files must not stop it.
"""

import fcntl
import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

import anyio
from anyio.abc import TaskGroup

from tests.broker_process import free_port
from tests.chaos.storm.member import CLOCK_LATE_MS, HOLD, SABOTAGE, STEP, STEP_BYTES, command
from tests.chaos.storm.proxy import Link

WATCH_S = 0.1
HOLD_S = 1.0
COORDINATOR = "coordinator"
OFTEN = {
    "balance_interval_s": "2",
    "min_rebalance_interval_s": "4",
    "node_lease_s": "1.5",
    "retention_check_s": "0.5",
}
"""Channels move from node to node under load, besides what is forced, and leases run out; what is
purged is given back while the storm rages."""
SEGMENT_BYTES = 1 << 20
STAGE_IDLE_MS = 10_000
"""A stage whose writer was cut off cannot be aborted, and expires. Until then no segment with its
rows is flushed: it has to end in the calm, and not after the ten minutes of the default."""
LATE_MS = (0, 10_000, 2_000, 20_000)
"""Of the wall clock of a coordinator that starts anew: it goes back by more than a window."""


class Member:
    """One process of the cluster, started again and again.

    `inside`: the words that run a command on its host; the pid stays the same.
    """

    def __init__(
        self,
        name: str,
        role: str,
        settings: dict[str, str],
        sabotage: str,
        inside: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.starts = 0
        beside = Path(settings["data_dir"])
        self._hold = beside.with_name(f"{name}.hold")
        self._hold.touch()
        self._command = [*inside, *command([role])]
        self._environment = {f"TIDEMARK_{key.upper()}": value for key, value in settings.items()}
        self._step = beside.with_name(f"{name}.step")
        self.step_clock(0)
        self._environment |= {HOLD: str(self._hold), SABOTAGE: sabotage, STEP: str(self._step)}
        self._said = beside.with_name(f"{name}.log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """None while it is dead."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        self.starts += 1
        self._process = process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | self._environment | {CLOCK_LATE_MS: str(self._late_ms())},
        )
        assert process.stdout is not None
        threading.Thread(target=_keep, args=(process.stdout, self._said), daemon=True).start()

    def step_clock(self, ms: int) -> None:
        """Its wall clock is so far ahead from now on, of what it would tell otherwise."""
        new = self._step.with_suffix(".new")
        new.write_bytes(ms.to_bytes(STEP_BYTES, "little", signed=True))
        new.replace(self._step)

    def _late_ms(self) -> int:
        return LATE_MS[(self.starts - 1) % len(LATE_MS)] if self.name.startswith(COORDINATOR) else 0

    def signal(self, number: signal.Signals) -> bool:
        """False when there is nobody."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)
        return pid is not None

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Its writes to the log wait at the door, once those that are inside have left."""
        with self._hold.open() as file:
            with anyio.move_on_after(HOLD_S):
                lock = partial(fcntl.flock, file.fileno(), fcntl.LOCK_EX)
                await anyio.to_thread.run_sync(lock, abandon_on_cancel=True)
            yield

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()


class Cluster:
    """On one data folder, with ports that stay the same over restarts.

    Clients reach it over two links, so that some may be left behind where others are not.
    """

    def __init__(self, folder: Path, nodes: int, pchannels: int, sabotage: str = "") -> None:
        ports = free_ports(3 * nodes + 4)
        home = ports.pop()
        self.client_links = [Link(f"clients-{it}", ports.pop(), home) for it in "ab"]
        self.links = list(self.client_links)
        data = {"data_dir": str(folder / "data"), "allow_chaos": "true", "log_level": "error"}
        data |= {"segment_bytes": str(SEGMENT_BYTES), "retention_check_s": "0.5"}
        data |= {"stage_idle_ms": str(STAGE_IDLE_MS)}
        told = data | OFTEN | {"listen": f"127.0.0.1:{home}", "pchannels": str(pchannels)}
        self.coordinator = Member(COORDINATOR, COORDINATOR, told, sabotage)
        self.nodes: list[Member] = []
        for number in range(1, nodes + 1):
            up = Link(f"node-{number}-coordinator", ports.pop(), home)
            listen = ports.pop()
            down = Link(f"to-node-{number}", ports.pop(), listen)
            self.links += [up, down]
            told = data | {
                "listen": f"127.0.0.1:{listen}",
                "advertise": down.address,
                "coordinator": up.address,
                "node_id": str(number),
            }
            self.nodes.append(Member(f"node-{number}", "node", told, sabotage))

    def links_of(self, node: int) -> list[Link]:
        """Its link to the coordinator, and that of others to it; `node` counts from 0."""
        first = len(self.client_links) + 2 * node
        return self.links[first : first + 2]

    @property
    def members(self) -> list[Member]:
        return [self.coordinator, *self.nodes]

    async def start(self, tasks: TaskGroup) -> None:
        for link in self.links:
            await link.start(tasks)
        for member in self.members:
            member.start()
        tasks.start_soon(self._watch)

    def end(self) -> None:
        for member in self.members:
            member.end()

    async def _watch(self) -> None:
        while True:
            await anyio.sleep(WATCH_S)
            for member in self.members:
                if member.pid is None:
                    member.start()


def free_ports(count: int) -> list[int]:
    """So many different ones."""
    found = set[int]()
    while len(found) < count:
        found.add(free_port())
    return sorted(found)


def _keep(said: IO[bytes], file: Path) -> None:
    with said, file.open("ab") as kept, suppress(ValueError):
        for line in said:
            kept.write(line)
