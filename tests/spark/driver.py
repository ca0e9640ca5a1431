"""A Spark driver as a process that is killed, with all its children or one of them.

It never ends by itself for good: whoever finds it gone starts another one.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATHS = (str(ROOT), str(ROOT / "broker" / "spark"))
"""Where a query finds this checkout, and Spark its source."""
WORKER = b"pyspark.daemon"


class Driver:
    """One process after the other, all on the same checkpoint."""

    def __init__(self, query: Path, server: str, folder: Path, *options: str) -> None:
        """`query`: a program that is given the server, the checkpoint and these options.

        It never returns.
        """
        self._query = query
        self._server = server
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.started = 0

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> Path:
        """What all of them said."""
        return self._folder / "driver.log"

    def start(self) -> None:
        self.kill()
        program = [sys.executable, str(self._query)]
        arguments = [self._server, str(self._folder / "checkpoint"), *self._options]
        paths = os.pathsep.join(filter(None, [*PATHS, os.environ.get("PYTHONPATH", "")]))
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | {"PYTHONPATH": paths},
            )
        self.started += 1

    def kill(self) -> None:
        """kill -9 for it, for its Java and for all that has begun; nothing if there is none."""
        if self._process is None:
            return
        for pid in [*_below(self._process.pid)]:
            _kill(pid)
        self._process.kill()
        self._process.wait()
        self._process = None

    def kill_a_task(self) -> bool:
        """kill -9 for a process that runs tasks; False when there is none now."""
        if self._process is None:
            return False
        tasks = [pid for pid in _below(self._process.pid) if _runs_tasks(pid)]
        return bool(tasks) and _kill(tasks[-1])


def _below(pid: int) -> Iterator[int]:
    """All descendants."""
    parents = {int(it.name): _parent(it) for it in Path("/proc").iterdir() if it.name.isdigit()}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        children = [child for child, of in parents.items() if of == parent]
        yield from children
        waiting += children


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):  # it has ended meanwhile
        return 0


def _runs_tasks(pid: int) -> bool:
    """Whether it was forked by one that forks those."""
    try:
        parent = _parent(Path(f"/proc/{pid}"))
        lines = [Path(f"/proc/{it}/cmdline").read_bytes() for it in (pid, parent)]
    except OSError:
        return False
    return all(WORKER in line for line in lines)


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
