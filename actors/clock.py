"""Time as an interface. Only this file reads the real clock; everything else is given a `Clock`."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import anyio


class Alarm(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Do not call back; no-op if it already has."""
        ...


class Clock(Protocol):
    """Time as the actors see it."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Unix time in milliseconds; may jump both ways."""
        ...

    async def sleep(self, duration_s: float) -> None:
        """Return after `duration_s` seconds."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Alarm:
        """Call `callback` on the event loop after `delay_s` seconds, unless cancelled before."""
        ...


class SystemClock:
    """The machine's clock and the running event loop's timers."""

    # Not a method of ours around it: every message reads this clock several times.
    monotonic_s = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // 1_000_000

    async def sleep(self, duration_s: float) -> None:
        """See Clock."""
        await anyio.sleep(duration_s)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Alarm:
        """See Clock."""
        return asyncio.get_running_loop().call_later(delay_s, callback)


@contextmanager
def deadline(clock: Clock, limit_s: float | None) -> Iterator[anyio.CancelScope]:
    """A cancel scope that is cancelled after `limit_s` seconds of this clock (None: never)."""
    # Not anyio's own deadline, because that would not follow a test's Clock.
    with anyio.CancelScope() as scope:
        alarm = None if limit_s is None else clock.call_later(limit_s, scope.cancel)
        try:
            yield scope
        finally:
            if alarm is not None:
                alarm.cancel()
