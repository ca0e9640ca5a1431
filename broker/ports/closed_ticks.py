"""How far the pchannels of the cluster are closed."""

from collections.abc import Mapping
from typing import Protocol

from broker.model.ids import PChannelName, TimeTick


class ClosedTicks(Protocol):
    """All pchannels of the cluster, on whichever node each of them is."""

    async def closed_ticks(self) -> Mapping[PChannelName, TimeTick]:
        """The newest closed tick of each pchannel that has an owner now; no I/O on any log.

        Returns within seconds; raises Refused.
        """
        ...
