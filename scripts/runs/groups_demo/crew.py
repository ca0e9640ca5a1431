"""The worker processes of the demonstration, and what they said."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from runs.groups_demo.worker import LEASE_S

QUICK_S, SLOW_S = 0.0, 0.6 * LEASE_S
"""The pause of a worker before each batch. The slow one has time for a batch within its lease, and
not for the one that waits behind it, whose lease runs already."""
STOP_S_MAX = 20


@dataclass(slots=True)
class Worker:
    """One process. `fate`: what is told of it at the end."""

    name: str
    pause_s: float
    said: Path
    fate: str = "worked to the end"
    process: "subprocess.Popen[bytes] | None" = field(default=None)

    def start(self, server: str) -> None:
        """Run it; its output goes to a file."""
        command = [sys.executable, "-m", "runs.groups_demo.worker"]
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                [*command, server, self.name, str(self.pause_s)],
                stdout=said,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def kill(self) -> None:
        """End it as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def end(self) -> None:
        """End it; kill -9 when that takes too long."""
        process = self.process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    @property
    def lost(self) -> int:
        """How many batches it lost because its lease was over, or for another error."""
        return sum(line.split(" ")[0].isdecimal() for line in self.said.read_text().splitlines())

    @property
    def crashed(self) -> str:
        """The last line of a process that ended by itself; "" for one that runs or was killed."""
        if self.process is None or self.process.poll() in (None, -signal.SIGKILL):
            return ""
        return (self.said.read_text().splitlines() or ["it said nothing"])[-1]


@contextmanager
def crew_of(folder: Path, pauses: Sequence[tuple[str, float]]) -> Iterator[list[Worker]]:
    """Workers that are not started yet; all have ended when the block ends."""
    workers = [Worker(name, pause_s, folder / f"{name}.log") for name, pause_s in pauses]
    for each in workers:
        each.said.touch()
    try:
        yield workers
    finally:
        for each in workers:
            each.end()
