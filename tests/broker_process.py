"""A real `tidemark serve` process for tests: started on loopback, ended by its pid."""

import itertools
import os
import random
import selectors
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.forked_process import COMMAND, ForkedProcess, run_forked

PCHANNELS = 4
"""With the default of 16 a broker takes twice the processor time to start; tests start hundreds."""
READY_S_MAX, STOP_S_MAX = 120, 60
"""Against hanging only."""
PORT_MIN, PORTS_TRIED = 10_000, 100
_chosen: set[int] = set()
"""By `free_port`; no port twice, as nobody may have bound the first one yet, or for a moment."""


def environment_with(settings: Mapping[str, str]) -> dict[str, str]:
    """That of this process, and settings for one that it starts."""
    given = {"pchannels": str(PCHANNELS), **settings}
    return os.environ | {f"TIDEMARK_{name.upper()}": value for name, value in given.items()}


class BrokerProcess:
    """Runs from construction until `terminate` or `kill`."""

    _popen: type[subprocess.Popen[str]] = ForkedProcess

    def __init__(
        self,
        data_dir: Path,
        listen: str = "127.0.0.1:0",
        *,
        inside: Sequence[str] = (),
        **settings: str,
    ) -> None:
        """`inside`: a command that becomes the one that follows it; the pid must stay the same."""
        self._process = self._popen(
            [*inside, *COMMAND, "serve", "--data-dir", str(data_dir), "--listen", listen],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment_with(settings),
        )
        try:
            ready = self._ready()
            self.listen = ready["listen"]
            self.address = ready.get("advertise", self.listen)
            """The one that clients are given."""
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def peak_bytes(self) -> int:
        """The most memory that was ever resident."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def cpu_s(self) -> float:
        """Seconds of processor time used so far, by all of its threads."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def terminate(self) -> int:
        """SIGTERM, and the exit code; a broker that does not stop in time is a failure."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.communicate(timeout=STOP_S_MAX)
        finally:
            self.kill()
        return self._process.returncode

    def stop_again_and_again(self) -> int:
        """Both stop signals in turn, a hundred a second, until it has ended; the exit code."""
        for number in itertools.cycle((signal.SIGINT, signal.SIGTERM)):
            self._process.send_signal(number)
            try:
                return self._process.wait(timeout=0.01)
            except subprocess.TimeoutExpired:
                continue
        raise AssertionError("a cycle does not end")

    def kill(self) -> None:
        """kill -9; nothing happens when it is gone already."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def __enter__(self) -> "BrokerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _ready(self) -> dict[str, str]:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(READY_S_MAX):
                raise TimeoutError(f"no ready line within {READY_S_MAX} s")
        line = self._process.stdout.readline()
        if not line.startswith("tidemark ready "):
            _, complaint = self._process.communicate(timeout=STOP_S_MAX)
            raise RuntimeError(f"the broker did not start: {line}{complaint}")
        return dict(word.split("=", 1) for word in line.split()[2:])


class FreshBrokerProcess(BrokerProcess):
    """Started by an interpreter of its own: for tests of starts, and of memory."""

    _popen: type[subprocess.Popen[str]] = subprocess.Popen


def failed_start(
    data_dir: Path,
    *options: str,
    listen: str = "127.0.0.1:0",
    inside: Sequence[str] = (),
    **settings: str,
) -> str:
    """What a broker that must not start says, which is one line, besides its log's; exit code 1."""
    environment = {f"TIDEMARK_{name.upper()}": value for name, value in settings.items()}
    command = [*inside, *COMMAND, "serve", "--data-dir", str(data_dir)]
    ended = run_forked(
        [*command, "--listen", listen, *options],
        text=True,
        env=os.environ | environment,
        timeout=READY_S_MAX,
    )
    assert ended.stdout == ""
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    complaint: str
    (complaint,) = [line for line in ended.stderr.splitlines() if line.startswith("tidemark: ")]
    return complaint


def free_port() -> int:
    """A loopback port nobody listens on now, for a process that binds it later, and again.

    Below those that the system hands out: a connection, or a listener of port 0, that comes while
    the process is not there would take one of them away. Each worker of pytest-xdist has ports of
    its own, as it does not see which ones another worker has chosen and not bound yet.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    handed_out = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.SystemRandom().sample(
        range(PORT_MIN + worker, handed_out, workers), PORTS_TRIED
    ):
        if port in _chosen:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _chosen.add(port)
            return port
    raise RuntimeError(f"of {PORTS_TRIED} ports below {handed_out} none is free")
