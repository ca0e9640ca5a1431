"""A `tidemark serve` process for a script: started on loopback, stopped when the block ends."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STOP_S_MAX = 60


@dataclass(frozen=True, slots=True)
class ServedBroker:
    """A broker that printed its ready line. `metrics` is a URL, "" when not served."""

    pid: int
    ready_line: str
    address: str
    http: str


Process = subprocess.Popen[str]


def terminated(process: Process) -> None:
    """Stop it as a service manager does; kill -9 when that takes too long."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        killed(process)


def killed(process: Process) -> None:
    """Stop it as a power cut does, except that the page cache survives."""
    process.kill()
    process.wait()


@contextmanager
def served_broker(
    data: Path,
    *options: str,
    role: str = "serve",
    stop: Callable[[Process], None] = terminated,
) -> Iterator[ServedBroker]:
    """A broker on a free port while the block runs. Raises SystemExit when it does not start.

    `role`: the command that starts it, `serve` or `coordinator`.
    """
    command = [sys.executable, "-m", "broker", role, "--data-dir", str(data)]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *options], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().strip()
        if not ready.startswith("tidemark ready"):
            raise SystemExit("The broker did not start; its own message stands above.")
        fields = dict(word.split("=", 1) for word in ready.split()[2:])
        yield ServedBroker(process.pid, ready, fields["listen"], fields.get("http", ""))
    finally:
        stop(process)
        if process.stdout is not None:
            process.stdout.close()
