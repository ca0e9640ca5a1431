"""Real etcd servers on loopback, from Debian's package `etcd-server`, for the tests that want one.

`etcd` on PATH, else where `.ci/run` unpacks it. Where there is none tests are skipped, and
fail in CI.
"""

import json
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hosts.etcd_program import find_etcd

from tests.broker_process import free_port
from tests.missing_part import missing_part

READY_S = 30


def etcd_command() -> str:
    """The program; skips the test without one."""
    found = find_etcd()
    if found is None:
        missing_part("etcd is not installed here")
    return found


class EtcdServer:
    """One member, which keeps its folder and its ports over restarts.

    `peers`: name and peer port of all members; alone without. `more`: further arguments.
    """

    def __init__(
        self,
        folder: Path,
        name: str = "one",
        peers: Sequence[tuple[str, int]] = (),
        more: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.name = name
        self.more = tuple(more)
        self._peers = tuple(peers) or ((name, free_port()),)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start it, and do not wait for it."""
        scheme = "https" if "--cert-file" in self.more else "http"
        peer = dict(self._peers)[self.name]
        client_url, peer_url = f"{scheme}://{self.address}", f"http://127.0.0.1:{peer}"
        members = ",".join([f"{name}=http://127.0.0.1:{port}" for name, port in self._peers])
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [
            etcd_command(), "--name", self.name, "--data-dir", str(self.folder / "data"),
            "--listen-client-urls", client_url, "--advertise-client-urls", client_url,
            "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url,
            "--initial-cluster", members, "--initial-cluster-token", str(self.folder.parent),
            "--heartbeat-interval", "50", "--election-timeout", "500",
            "--log-level", "error", "--logger", "zap", *self.more,
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        return self

    def wait(self) -> Self:
        """Until it takes writes."""
        assert self._process is not None
        for _ in range(READY_S * 20):
            if self._process.poll() is not None:
                raise AssertionError((self.folder / "log").read_text()[-2000:])
            try:
                self.post("kv/put", {"key": "cGluZw==", "value": ""})
            except (OSError, urllib.error.URLError):
                # Waits for the process, not for a time: it ends when etcd does.
                try:
                    self._process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
            else:
                return self
        raise AssertionError(f"etcd at {self.address} took no writes within {READY_S} s")

    def post(self, path: str, body: dict[str, Any], token: str = "") -> Any:
        """Call etcd's JSON gateway: another way than the one under test."""
        request = urllib.request.Request(
            f"http://{self.address}/v3/{path}",
            json.dumps(body).encode(),
            {"Authorization": token} if token else {},
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    def send(self, number: signal.Signals) -> None:
        """A signal, such as SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill -9; nothing when it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def back_up(self) -> None:
        """Copy what it has, for one `restore`; it is stopped meanwhile."""
        self.kill()
        shutil.copytree(self.folder / "data", self.folder / "copy")
        self.start().wait()

    def restore(self) -> None:
        """Go back to what it had at `back_up`."""
        self.kill()
        shutil.rmtree(self.folder / "data")
        (self.folder / "copy").rename(self.folder / "data")
        self.start().wait()

    def raise_revision(self, above: int) -> None:
        """As `etcdutl snapshot restore --bump-revision`: what it has keeps its revisions."""
        revision = 0
        while revision <= above:
            put = self.post("kv/put", {"key": "cGluZw==", "value": ""})
            revision = int(put["header"]["revision"])

    def __enter__(self) -> Self:
        return self.start().wait()

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.kill()


@contextmanager
def etcd_cluster(folder: Path, size: int = 3) -> Iterator[list[EtcdServer]]:
    """A cluster that takes writes on all members when the block begins."""
    peers = [(f"m{number}", free_port()) for number in range(size)]
    with ExitStack() as stack:
        members = [EtcdServer(folder / name, name, peers) for name, _ in peers]
        for member in members:
            stack.callback(member.kill)
            member.start()
        for member in members:
            member.wait()
        yield members
