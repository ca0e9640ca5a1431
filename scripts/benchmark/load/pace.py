"""Offers messages at a fixed rate (an open loop), so that waiting before a send is counted, too.

Each message has a time when it is due, and its latency counts from there, also when the sender is
late. Uses `perf_counter`, because uvloop's clock does not advance within one turn of its loop.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from benchmark.load.beats import Beats
from benchmark.results.figures import quantiles

STEP_S = 0.001
SETTLE_S_MAX = 10.0

BEHIND_S_MAX = 3.0


class Behind(Exception):
    """The subject is slower than the rate, so that unsent messages pile up."""


Offer = Callable[[int, float], Awaitable[None]]
"""Send so many that are due at this `perf_counter`; returns without waiting for answers."""


@dataclass(frozen=True, slots=True)
class Pace:
    """A rate, and for how long it is kept."""

    rate: int
    seconds: float

    @property
    def messages(self) -> int:
        """The number of messages."""
        return self.each * self.steps

    @property
    def each(self) -> int:
        """The number of messages that are due together, each millisecond."""
        return max(1, int(self.rate * STEP_S))

    @property
    def steps(self) -> int:
        return int(self.rate * self.seconds) // self.each

    async def keep(self, offer: Offer) -> None:
        """Offer each message when it is due, or late. Raises Behind when far too late."""
        step_s = self.each / self.rate
        with Beats(step_s) as beats:
            for step in range(self.steps):
                due_s = beats.started_s + step * step_s
                await beats.until(due_s)
                late_s = time.perf_counter() - due_s
                await offer(self.each, due_s)
                if late_s > BEHIND_S_MAX:
                    raise Behind(f"it takes less than {self.rate:,} msg/s: {late_s:.1f} s behind")


class Answers:
    """Collects latencies until all have arrived."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._all = asyncio.Event()
        self._error: BaseException | None = None
        self.took_s: list[float] = []

    def came(self, due_s: float, count: int = 1) -> None:
        """Count that many answers to messages that were due at that time."""
        self.took_s += [time.perf_counter() - due_s] * count
        if len(self.took_s) >= self._expected:
            self._all.set()

    def settles(self, future: "asyncio.Future[Any]", due_s: float, count: int = 1) -> None:
        """Count answers when the future is done; its error ends the measurement."""
        future.add_done_callback(lambda done: self._settled(done, due_s, count))

    def _settled(self, done: "asyncio.Future[Any]", due_s: float, count: int) -> None:
        if done.cancelled() or done.exception() is not None:
            self._error = done.exception() if not done.cancelled() else None
            self._all.set()
        else:
            self.came(due_s, count)

    async def quantiles(self) -> dict[str, float]:
        """Wait for all answers; their percentiles. Raises Behind when some do not arrive."""
        try:
            await asyncio.wait_for(self._all.wait(), SETTLE_S_MAX)
        except TimeoutError:
            missing = self._expected - len(self.took_s)
            raise Behind(
                f"{missing} of {self._expected} unanswered after {SETTLE_S_MAX} s"
            ) from None
        if self._error is not None:
            raise self._error
        return quantiles(self.took_s)
