"""Coordinators and nodes as real processes for tests, and what can be seen of them."""

import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from broker.client import Client
from tests.broker_process import environment_with
from tests.forked_process import COMMAND, ForkedProcess

GUARD_S = 90.0
"""Against hanging; a loaded machine takes many seconds to start an interpreter."""


async def until(happens: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again, for a while."""
    with anyio.fail_after(GUARD_S):
        while True:
            if await happens():
                return
            await anyio.sleep(0.05)


async def node_pids(log: Client) -> dict[int, int]:
    """The node processes that the coordinator watches over, by node id."""
    return {
        int(actor.path.rpartition("-")[2]): int(actor.extra["pid"])
        for actor in await log.admin.actors()
        if "/fleet/node-" in actor.path and "pid" in actor.extra
    }


async def owners(log: Client) -> dict[str, int]:
    """The node of each pchannel that is served."""
    return {it.name: it.node_id for it in await log.admin.channels() if it.state == "assigned"}


def is_alive(pid: int) -> bool:
    """Whether the process runs or is stopped; one that is only not buried yet is dead."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


class RoleProcess:
    """`tidemark <role> ...`: started by construction; `line` is what it says when it is ready."""

    _popen: type[subprocess.Popen[str]] = ForkedProcess

    def __init__(self, *arguments: str, **settings: str) -> None:
        self.process = self._popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment_with(settings),
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    async def ready(self) -> str:
        """The address it serves; fails when it ends instead."""
        return self._address(await self.first_line(), "ready")

    async def stands_by(self) -> str:
        """The address of a coordinator that does not lead; fails when it does."""
        return self._address(await self.first_line(), "standby")

    async def first_line(self) -> str:
        """The next line on its standard output."""
        assert self.process.stdout is not None
        with anyio.fail_after(GUARD_S):
            return await anyio.to_thread.run_sync(
                self.process.stdout.readline, abandon_on_cancel=True
            )

    def _address(self, line: str, what: str) -> str:
        if not line.startswith(f"tidemark {what} "):
            self.process.kill()
            raise AssertionError(f"{line}{self.process.communicate(timeout=9)[1]}")
        return dict(word.split("=", 1) for word in line.split()[2:])["listen"]

    async def complaint(self, code: int = 1) -> str:
        """What it says when it does not start; `code`: 2 where the command itself is wrong."""
        with anyio.fail_after(GUARD_S):
            _, said = await anyio.to_thread.run_sync(
                self.process.communicate, abandon_on_cancel=True
            )
        assert self.process.returncode == code, said
        return [line for line in said.splitlines() if line.startswith("tidemark: ")][-1]

    async def says(self, words: str) -> str:
        """The first line of what it says that has these words."""
        assert self.process.stderr is not None
        with anyio.fail_after(GUARD_S):
            while True:
                line = await anyio.to_thread.run_sync(
                    self.process.stderr.readline, abandon_on_cancel=True
                )
                assert line, f"it ended with code {self.process.wait()}"
                if words in line:
                    return line

    async def stopped_by(self, number: signal.Signals) -> str:
        """All that it has said when the signal has ended it, with code 0."""
        self.process.send_signal(number)
        with anyio.fail_after(GUARD_S):
            _, said = await anyio.to_thread.run_sync(
                self.process.communicate, abandon_on_cancel=True
            )
        assert self.process.returncode == 0, said
        return said

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=GUARD_S)
        return self.process.returncode

    def __enter__(self) -> "RoleProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.communicate()


class FreshRoleProcess(RoleProcess):
    """Started by an interpreter of its own: for tests of signals amid a start."""

    _popen: type[subprocess.Popen[str]] = subprocess.Popen
