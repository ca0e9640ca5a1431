"""Appends the copies of a broadcast to pchannels, whichever nodes own them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from broker.model.broadcast import BroadcastCopy
from broker.model.failure import Refusal
from broker.model.ids import PChannelName, TimeTick
from broker.model.message import Appended


class BroadcastAppends(Protocol):
    """Every call returns within about a minute, raises nothing, and may be cancelled.

    After cancellation, or without an answer for a copy, it is unknown whether the copy is stored.
    """

    async def append(self, copies: Sequence[BroadcastCopy]) -> Sequence[Appended | Refusal]:
        """Append all copies concurrently; one outcome for each, in the same order.

        An Appended copy is durable. A refused one may be stored if its code says that the outcome
        is unknown; the coordinator then appends it again.
        """
        ...

    async def processed(self, pchannels: Sequence[PChannelName]) -> Mapping[PChannelName, TimeTick]:
        """The tick up to which the owner of each pchannel has processed its records.

        An owner replays its log before anything else, so a restart loses nothing. A pchannel
        without an owner, or whose owner does not answer, is left out.
        """
        ...
