"""Where a node gets time ticks from."""

from dataclasses import dataclass
from typing import Protocol

from broker.model.ids import TimeTick


@dataclass(frozen=True, slots=True)
class TickRange:
    """`count` ticks, first, first + 1, …; nobody else ever gets one of them."""

    first: TimeTick
    count: int


class TickSource(Protocol):
    """Ticks larger than any handed out before, over restarts and clock steps."""

    async def reserve(self, count: int) -> TickRange:
        """Contiguous ticks, 1 <= count <= 65536. Raises Refused(INNER) when none can be had."""
        ...
