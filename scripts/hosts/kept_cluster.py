"""What a running cluster says of itself in its folder, how its keeper is asked, how it is ended.

Needs nothing but the standard library, so that `down` works without an environment.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

CLUSTER: Final = Path(__file__).resolve().parents[2] / ".cluster" / "run"
STATE: Final = "state.json"
CONTROL: Final = "control"
END_S_MAX: Final = 60.0
ASK_S_MAX: Final = 120.0


class NoCluster(Exception):
    """There is no cluster, or it does not do what was asked; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Process:
    """One that we started. `began`: in ticks since the boot, so no later one is taken for it."""

    name: str
    pid: int
    began: int

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return began(self.pid) == self.began

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and to all of its group; nothing when it has ended."""
        if not self.alive:
            return
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """`servers`, `spark`: where clients connect. `namespaces`: by host; empty on loopback.

    `hosts`: the processes of each. `ready`: all of them serve.
    """

    keeper: Process
    servers: str = ""
    spark: str = ""
    namespaces: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, list[Process]] = field(default_factory=dict)
    ready: bool = False

    def inside(self, host: str) -> list[str]:
        """The words that run a command on a host."""
        found = self.namespaces.get(host, "")
        return ["ip", "netns", "exec", found] if found else []

    @property
    def processes(self) -> list[Process]:
        """All but the keeper."""
        return [it for some in self.hosts.values() for it in some]


def write_state(folder: Path, state: ClusterState) -> None:
    """Replace what was written before."""
    draft = folder / f"{STATE}.draft"
    draft.write_text(json.dumps(asdict(state), indent=1))
    draft.replace(folder / STATE)


def read_state(folder: Path) -> ClusterState | None:
    """None where there is none."""
    try:
        fields: Any = json.loads((folder / STATE).read_text())
    except FileNotFoundError:
        return None
    fields["keeper"] = Process(**fields["keeper"])
    fields["hosts"] = {
        host: [Process(**each) for each in some] for host, some in fields["hosts"].items()
    }
    return ClusterState(**fields)


def running_cluster(folder: Path) -> ClusterState:
    """The cluster that runs. Raises NoCluster."""
    state = read_state(folder)
    if state is None or not state.keeper.alive:
        raise NoCluster("no cluster runs here; start one with: python3 scripts/cluster.py up")
    return state


def ask_keeper(folder: Path, **request: Any) -> None:
    """Have the keeper do something. Raises NoCluster when it does not."""
    try:
        with socket.socket(socket.AF_UNIX) as link, link.makefile("rw") as lines:
            link.settimeout(ASK_S_MAX)
            link.connect(str(folder / CONTROL))
            lines.write(json.dumps(request) + "\n")
            lines.flush()
            answer = json.loads(lines.readline() or '{"error": "the keeper has ended"}')
    except OSError as error:
        raise NoCluster(f"the keeper of {folder} does not answer: {error}") from error
    if answer["error"]:
        raise NoCluster(answer["error"])


def end_cluster(folder: Path) -> list[str]:
    """End its processes, each by its own id, and remove its namespaces; their names."""
    state = read_state(folder)
    if state is None:
        return []
    everyone = [it for it in [state.keeper, *state.processes] if it.alive]
    if state.keeper.alive:
        os.kill(state.keeper.pid, signal.SIGTERM)
    if not _ended([state.keeper]):
        state.keeper.send(signal.SIGKILL)
    state = read_state(folder) or state
    # Of a keeper that was killed: in order it has ended all of them.
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = [it for it in state.processes if it.alive]
        for each in left:
            each.send(number)
        if _ended(left):
            break
    for name in state.namespaces.values():
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    (folder / STATE).unlink(missing_ok=True)
    return [it.name for it in everyone]


def started(name: str, pid: int) -> Process:
    """A process that was just started."""
    return Process(name, pid, began(pid))


def began(pid: int) -> int:
    """When it began, in ticks since the boot; 0 when there is none, or one that has only to be
    waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def _ended(processes: list[Process]) -> bool:
    until_s = time.monotonic() + END_S_MAX
    while any(it.alive for it in processes):
        if time.monotonic() >= until_s:
            return False
        time.sleep(0.05)
    return True
