"""Server processes: CPU time, memory, start and end."""

import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

READY_S_MAX = 60


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
        times = [it.cpu_times() for it in self._processes()]
        return float(sum([it.user + it.system for it in times]))

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
        return sum([int(it.memory_info().rss) for it in self._processes()])

    def _processes(self) -> list[psutil.Process]:
        own = psutil.Process(self.pid)
        return [own, *own.children(recursive=True)]


def wait_for(port: int, process: "subprocess.Popen[Any]", log: Path, name: str) -> None:
    """Wait until it listens on the port. Raises Unavailable with the end of its log."""
    until_s = time.monotonic() + READY_S_MAX
    while time.monotonic() < until_s:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
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


def _peak_bytes(process: psutil.Process) -> int:
    try:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return int(process.memory_info().rss)
