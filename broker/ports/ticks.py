"""Where a node gets time ticks from."""

from dataclasses import dataclass
from typing import Protocol

from broker.model.ids import TimeTick

RESERVE_COUNT_MAX = 65_536
"""The most ticks of one reservation."""


@dataclass(frozen=True, slots=True)
class TickRange:
    """`count` ticks, first, first + 1, …; nobody else ever gets one of them."""

    first: TimeTick
    count: int


class TickSource(Protocol):
    """Ticks larger than any handed out before, over restarts and clock steps."""

    async def reserve(self, count: int) -> TickRange:
        """Contiguous ticks, 1 <= count <= RESERVE_COUNT_MAX, within a bounded time.

        Raises Refused(INNER) when none can be had now, Refused(INVALID_ARGUMENT) for another count.
        """
        ...
