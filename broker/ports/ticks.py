"""The source of time ticks."""

from dataclasses import dataclass
from typing import Protocol

from broker.model.ids import TimeTick

RESERVE_COUNT_MAX = 65_536
"""The most ticks of one reservation."""


@dataclass(frozen=True, slots=True)
class TickRange:
    """The ticks first, first + 1, … (`count` of them), issued to this caller only."""

    first: TimeTick
    count: int


class TickSource(Protocol):
    """Issues ticks larger than any before, across restarts and clock steps."""

    async def reserve(self, count: int) -> TickRange:
        """Reserve contiguous ticks, 1 <= count <= RESERVE_COUNT_MAX, within a bounded time.

        Raises Refused(INNER) if none are available now, Refused(INVALID_ARGUMENT) for other counts,
        Refused(ON_SHUTDOWN) when the session of this node is over.
        """
        ...
