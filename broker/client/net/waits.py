"""Says on the log what a client waits for while it has no connection.

Lines go to the logger `tidemark.client` as warnings, which Python writes to stderr unless the
program has configured its logs otherwise.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from broker.client.net.wait_report import Wait, WaitReport

SILENT_S = 5.0
"""A served reader gets a time tick every 200 ms."""
LOOK_S = 2.5

LOGGER = "tidemark.client"

log = logging.getLogger(LOGGER)


def answer_of(address: str) -> str:
    """What is waited for while the server at `address` is away."""
    return f"an answer of {address}"


class Listening(Protocol):
    """A stream on which the server should send something all the time."""

    def silent_s(self) -> float: ...


@dataclass(slots=True, eq=False)
class _Ear:
    stream: Listening
    name: str
    address: str
    quiet_s: float
    wait: Wait | None = None


class Waits:
    """The waits of one client, and the timers that find and report them."""

    def __init__(self) -> None:
        self._report = WaitReport()
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._ears: set[_Ear] = set()

    def begin(self, what: str, name: str = "", cause: str = "") -> Wait:
        """A wait that has begun now. `what` completes "waiting for"; `cause` may be set later."""
        loop = asyncio.get_running_loop()
        wait = Wait(what, name, loop.time(), cause)
        self._report.begun(wait)
        self._arm(loop)
        return wait

    def end(self, wait: Wait | None, *, succeeded: bool) -> None:
        """End a wait; says that the client continues, if it said before that it waits."""
        if wait is None:
            return
        try:
            now_s = asyncio.get_running_loop().time()
        except RuntimeError:
            return  # the loop has ended, and the client with it
        line = self._report.ended(wait, now_s, succeeded=succeeded)
        if line:
            log.warning(line)

    @contextmanager
    def silence_of(
        self, stream: Listening, name: str, address: str, quiet_s: float = SILENT_S
    ) -> Iterator[None]:
        """Report it when the server at `address` sends nothing for `quiet_s` meanwhile."""
        ear = _Ear(stream, name, address, quiet_s)
        self._ears.add(ear)
        self._look_later()
        try:
            yield
        finally:
            self._ears.discard(ear)
            self.end(ear.wait, succeeded=False)

    def close(self) -> None:
        """Report nothing more."""
        for timer in (self._timer, self._look):
            if timer is not None:
                timer.cancel()
        self._ears.clear()
        self._report = WaitReport()

    def _look_later(self) -> None:
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(LOOK_S, self._look_for_silence)

    def _look_for_silence(self) -> None:
        self._look = None
        for ear in self._ears:
            silent = ear.stream.silent_s() > ear.quiet_s
            if silent and ear.wait is None:
                cause = f"{ear.address} sends nothing; consumption may be paused (tidemark health)"
                ear.wait = self.begin("messages and time ticks", ear.name, cause)
            elif not silent:
                self.end(ear.wait, succeeded=True)
                ear.wait = None
        if self._ears:
            self._look_later()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        at_s = self._report.next_s()
        if at_s is not None and self._timer is None:
            self._timer = loop.call_at(at_s, self._tell, loop)

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        for line in self._report.due(loop.time()):
            log.warning(line)
        self._arm(loop)
