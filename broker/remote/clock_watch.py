"""Compares the time of each tick that a node gets with the clock of its host."""

import math

from actors import Clock
from broker.core.time.clock_difference import ahead_ms, node_warning
from broker.ports.ticks import TickRange, TickSource

FRESH_S = 10.0
"""What was found earlier is not told: ticks come several times a second while a node serves."""


class ClockWatch:
    """A `TickSource` in front of another one."""

    def __init__(self, source: TickSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._ahead_ms = 0
        self._heard_s = -math.inf

    async def reserve(self, count: int) -> TickRange:
        """See TickSource."""
        asked_ms = self._clock.wall_ms()
        given = await self._source.reserve(count)
        # Compared now and not when somebody looks: a tick that is kept falls behind every clock.
        self._ahead_ms = ahead_ms(given.first, asked_ms, self._clock.wall_ms())
        self._heard_s = self._clock.monotonic_s()
        return given

    def warnings(self) -> list[str]:
        """A sentence while the newest ticks and the clock differ by seconds."""
        if self._clock.monotonic_s() - self._heard_s > FRESH_S:
            return []
        told = node_warning(self._ahead_ms)
        return [told] if told else []
