"""The signals of a server process, from its first line to its last: stop once, reload at any time.

Installed before the imports of a server, which take a second. A signal never meets the system's
default action after that: handlers are replaced, and never removed.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType

STOPS = (signal.SIGTERM, signal.SIGINT)
RELOADS = signal.SIGHUP
RELOAD_GAP_S = 0.5
"""To reload takes some milliseconds of the event loop: many signals a second must not fill it."""


class ProcessSignals:
    """Before the event loop a stop ends the process at once, with code 0, and a reload is kept.

    With the loop both are passed on to what `attach` named. Reloads that come within RELOAD_GAP_S
    of another are one reload, at the end of that time. After a stop all are ignored.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], object] | None = None
        self._reload: Callable[[], object] | None = None
        self._deferred = self._stop_kept = self._reload_kept = False
        self._next_reload_s = 0.0

    def install(self) -> None:
        """Handle the signals of this process from now on; main thread only."""
        for number in STOPS:
            signal.signal(number, self._stopped)
        signal.signal(RELOADS, self._reloaded)

    def defer(self) -> None:
        """Keep a stop for `attach` from now on: the event loop is being made."""
        self._deferred = True

    def attach(self, stop: Callable[[], object], reload: Callable[[], object]) -> None:
        """Call these on the running event loop, at once if the signal has come before."""
        self._loop, self._stop, self._reload = asyncio.get_running_loop(), stop, reload
        if self._reload_kept:
            self._reload_now()
        if self._stop_kept:
            self.stop()

    def stop(self) -> None:
        """Stop as by a signal. Further signals cut neither the drain nor the exit code."""
        self._ignore()
        self._reload = None  # one may be waiting for its time
        if self._stop is not None:
            self._stop()

    def _ignore(self) -> None:
        for number in (*STOPS, RELOADS):
            # Not the loop's remove_signal_handler: the next signal would kill for a moment.
            signal.signal(number, signal.SIG_IGN)

    def _stopped(self, _number: int, _frame: FrameType | None) -> None:
        if self._loop is not None:
            self._soon(self.stop)
        elif self._deferred:
            self._stop_kept = True
        else:
            # Not SystemExit: the code of classes, which imports run, may wrap it in another.
            os._exit(0)

    def _reloaded(self, _number: int, _frame: FrameType | None) -> None:
        if self._reload_kept:
            return
        self._reload_kept = True
        if self._loop is not None:
            self._soon(self._reload_soon)

    def _reload_soon(self) -> None:
        assert self._loop is not None
        left_s = max(0.0, self._next_reload_s - self._loop.time())
        self._loop.call_later(left_s, self._reload_now)

    def _reload_now(self) -> None:
        assert self._loop is not None
        if self._reload is None:
            return
        # Before it: a signal that comes meanwhile may have changed what was read already.
        self._reload_kept = False
        self._reload()
        self._next_reload_s = self._loop.time() + RELOAD_GAP_S

    def _soon(self, act: Callable[[], object]) -> None:
        assert self._loop is not None
        # Otherwise the process has failed and is ending, with an exit code that says so.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)


SIGNALS = ProcessSignals()
"""Those of this process."""
