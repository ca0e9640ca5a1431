"""Server processes: CPU time, memory, start and end."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

READY_S_MAX = 60
CPU_CLOCK = 2
"""Of Linux's clocks of a process: the one with the time its threads ran (CPUCLOCK_SCHED)."""


class Unavailable(Exception):
    """A server cannot be measured; the message says why."""


@dataclass(slots=True)
class Server:
    """One running server with all processes that it started."""

    name: str
    pid: int
    address: Any

    def cpu_s(self) -> float:
        """CPU time used so far."""
        return sum([_cpu_s(it) for it in self._processes()])

    def wake_ups(self) -> int | None:
        """How often its threads began to wait, so far; None where the system does not count that.

        Of an idle server with one thread these are the turns of its event loop.
        """
        found = [count for it in self._processes() for count in _waits(it)]
        return sum(found) if found else None

    def forget_peak(self) -> None:
        """Reset `peak_bytes`, where the system can do that."""
        for it in self._processes():
            try:
                Path(f"/proc/{it.pid}/clear_refs").write_text("5")
            except OSError:
                continue

    def peak_bytes(self) -> int:
        """Peak resident memory since `forget_peak`; the present one where systems keep no peak."""
        return sum([_peak_bytes(it) for it in self._processes()])

    def resident_bytes(self) -> int:
        """Resident memory now."""
        return sum([_resident_bytes(it) for it in self._processes()])

    def _processes(self) -> list[psutil.Process]:
        own = psutil.Process(self.pid)
        return [own, *own.children(recursive=True)]


def wait_for(
    place: int | tuple[str, int], process: "subprocess.Popen[Any]", log: Path, name: str
) -> None:
    """Wait until it listens on a port, of loopback without a host.

    Raises Unavailable with the end of its log.
    """
    until_s = time.monotonic() + READY_S_MAX
    address = ("127.0.0.1", place) if isinstance(place, int) else place
    while time.monotonic() < until_s:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(address) == 0:
                return
        time.sleep(0.05)
    said = log.read_text(errors="replace")[-300:] if log.exists() else "it wrote no log"
    raise Unavailable(f"{name} does not start: {said}")


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stop(process: "subprocess.Popen[Any]") -> None:
    """End it with SIGTERM; with SIGKILL when that takes too long."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(READY_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _cpu_s(process: psutil.Process) -> float:
    try:
        # Exact: psutil's figures have steps of 10 ms, more than 100 single appends may use.
        return time.clock_gettime(~process.pid << 3 | CPU_CLOCK)
    except OSError:
        pass
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _waits(process: psutil.Process) -> Iterator[int]:
    """Of each thread."""
    for status in Path(f"/proc/{process.pid}/task").glob("*/status"):
        try:
            told = status.read_text()
        except OSError:
            continue  # the thread has ended
        for line in told.splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                yield int(line.split()[1])


def _peak_bytes(process: psutil.Process) -> int:
    try:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return _resident_bytes(process)


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0  # servers start and end programs of their own, such as df
