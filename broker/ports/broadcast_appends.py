"""How the coordinator puts the copies of a broadcast on pchannels, wherever their owners are."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from broker.model.broadcast import BroadcastCopy
from broker.model.failure import Refusal
from broker.model.ids import PChannelName, TimeTick
from broker.model.message import Appended


class BroadcastAppends(Protocol):
    """Every call ends by itself within about a minute, raises nothing, and may be cancelled.

    Whoever is cancelled, or gets no answer for a copy, does not know whether it is in the log.
    """

    async def append(self, copies: Sequence[BroadcastCopy]) -> Sequence[Appended | Refusal]:
        """Append each copy to its pchannel, all at once; one outcome for each, in the same order.

        An Appended copy is durable. A refused one may be in the log all the same when its code says
        that nobody knows; the coordinator then appends it again.
        """
        ...

    async def processed(self, pchannels: Sequence[PChannelName]) -> Mapping[PChannelName, TimeTick]:
        """Up to which tick the owner of each pchannel has taken note of its records.

        It does so again after a restart, before anything else, so what it has seen is not lost.

        A pchannel that has no owner now, or one that cannot say, is left out.
        """
        ...
