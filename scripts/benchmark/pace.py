"""Messages at a fixed rate, whatever becomes of them: so that waiting is counted, and not left out.

Each message has a time at which it is due, and its latency counts from there, also when the sender
itself comes late. By `perf_counter`: the clock of uvloop stands still for a whole turn of the loop.
Next: scripts/benchmark/beats.py
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from benchmark.beats import Beats
from benchmark.figures import quantiles

STEP_S = 0.001
SETTLE_S_MAX = 10.0

BEHIND_S_MAX = 3.0


class Behind(Exception):
    """The subject takes less than the rate: what it would be asked for only piles up."""


Offer = Callable[[int, float], Awaitable[None]]
"""Send so many that are due at this `perf_counter`; returns without waiting for answers."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast and for how long."""

    rate: int
    seconds: float

    @property
    def messages(self) -> int:
        """In all."""
        return self.each * self.steps

    @property
    def each(self) -> int:
        """Due together, every millisecond."""
        return max(1, int(self.rate * STEP_S))

    @property
    def steps(self) -> int:
        return int(self.rate * self.seconds) // self.each

    async def keep(self, offer: Offer) -> None:
        """Offer all of them, each when it is due, or late. Raises Behind when far too late."""
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
    """Latencies as they come in, until all are there."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._all = asyncio.Event()
        self._error: BaseException | None = None
        self.took_s: list[float] = []

    def came(self, due_s: float, count: int = 1) -> None:
        """So many that were due then."""
        self.took_s += [time.perf_counter() - due_s] * count
        if len(self.took_s) >= self._expected:
            self._all.set()

    def settles(self, future: "asyncio.Future[Any]", due_s: float, count: int = 1) -> None:
        """Count them when the future is done; its error ends the measurement."""
        future.add_done_callback(lambda done: self._settled(done, due_s, count))

    def _settled(self, done: "asyncio.Future[Any]", due_s: float, count: int) -> None:
        if done.cancelled() or done.exception() is not None:
            self._error = done.exception() if not done.cancelled() else None
            self._all.set()
        else:
            self.came(due_s, count)

    async def quantiles(self) -> dict[str, float]:
        """When all have come. Raises Behind when some do not."""
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
