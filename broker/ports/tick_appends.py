"""Appends time ticks to channels, whichever nodes own them."""

from collections.abc import Sequence
from typing import Protocol

from broker.model.failure import Refusal
from broker.model.ids import TimeTick


class TickAppends(Protocol):
    """Every call returns within about a minute, raises nothing, and may be cancelled."""

    async def append(self, tick: TimeTick, channels: Sequence[str]) -> Sequence[Refusal | None]:
        """Append one time tick message to each channel; None where it is durable, in order.

        A refused one may be stored if its code says that the outcome is unknown.
        """
        ...
