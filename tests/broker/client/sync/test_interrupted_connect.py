"""A Ctrl-C while a blocking client connects: one is enough, at whichever step the thread is."""

import _thread
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from broker.client import Client
from broker.client.sync import loop_thread
from broker.client.sync.loop_thread import NAME, LoopThread

RESCUE_S = 30.0
"""A second Ctrl-C then ends a test that would hang, so that it fails."""

CtrlC = Callable[[], None]


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> Iterator[CtrlC]:
    """Interrupts the main thread, and returns when that raises KeyboardInterrupt.

    As a Ctrl-C in the instant before the main thread begins to wait: it interrupts no wait.
    """
    seen, rescued = threading.Event(), threading.Event()

    def interrupted(*_: object) -> None:
        seen.set()
        raise KeyboardInterrupt

    def press() -> None:
        _thread.interrupt_main()
        seen.wait()

    def rescue() -> None:
        rescued.set()
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(loop_thread, "LOOK_S", 0.01)
    monkeypatch.setattr(loop_thread, "ABORT_S", RESCUE_S)
    before = signal.signal(signal.SIGINT, interrupted)
    timer = threading.Timer(RESCUE_S, rescue)
    timer.start()
    try:
        yield press
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert not rescued.is_set(), "one Ctrl-C was not enough"


def threads() -> list[str]:
    return [it.name for it in threading.enumerate() if it.name == NAME]


@asynccontextmanager
async def connected_at_once() -> AsyncIterator[Any]:
    yield None


def interrupted(
    opened: Callable[[], AbstractAsyncContextManager[Client]],
    kind: type[LoopThread] = LoopThread,
) -> None:
    """Connect, which a Ctrl-C must end; no thread may be left."""
    with pytest.raises(KeyboardInterrupt):
        kind(opened)
    assert threads() == []


def test_before_the_loop_runs(ctrl_c: CtrlC, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "_loop_factory", ctrl_c)  # as the import of uvloop takes time
    interrupted(connected_at_once)


def test_while_it_connects(ctrl_c: CtrlC) -> None:
    @asynccontextmanager
    async def connecting() -> AsyncIterator[Any]:
        ctrl_c()
        await anyio.sleep_forever()
        yield

    interrupted(connecting)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("name", ["_loop", "client", "_end"])
def test_between_two_steps(name: str) -> None:
    """When the loop runs, when it has connected, and when nothing else is left to do."""

    class Interrupted(LoopThread):
        def __setattr__(self, attribute: str, value: object) -> None:
            super().__setattr__(attribute, value)
            if attribute == name:
                raise KeyboardInterrupt

    interrupted(connected_at_once, Interrupted)


@pytest.mark.usefixtures("ctrl_c")
def test_a_connect_that_fails_leaves_no_thread() -> None:
    @asynccontextmanager
    async def refused() -> AsyncIterator[Any]:
        if threads():
            raise TimeoutError("nobody answers")
        yield

    with pytest.raises(TimeoutError, match="nobody answers"):
        LoopThread(refused)
    assert threads() == []
