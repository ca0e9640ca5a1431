"""Recognises repeated copies of a broadcast, so that each takes effect once on a vchannel.

A coordinator that dies between appending a copy and recording that it did appends it again. The two
copies have the same broadcast id and different message ids; the first in the log counts.
"""

from collections import OrderedDict

from broker.model.ids import BroadcastId

REMEMBERED_MAX = 16_384
"""Twice what a coordinator remembers, so that a repeated copy never comes too late to be known."""


class SeenBroadcasts:
    """For one reader; call once for each copy, in log order."""

    def __init__(self, remembered_max: int = REMEMBERED_MAX) -> None:
        self._remembered_max = remembered_max
        self._places: OrderedDict[tuple[str, BroadcastId], int] = OrderedDict()

    def is_first(self, vchannel: str, broadcast_id: BroadcastId, message_id: int) -> bool:
        """Whether this copy counts; the first one still does when it is read again."""
        key = (vchannel, broadcast_id)
        first = self._places.setdefault(key, message_id)
        if len(self._places) > self._remembered_max:
            self._places.popitem(last=False)
        return first == message_id
