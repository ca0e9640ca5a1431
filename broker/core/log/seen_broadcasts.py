"""Which broadcasts were seen on a vchannel already: a copy that comes again is no news.

A coordinator that died between appending a copy and recording it appends it again. So one broadcast
may lie twice in a log, with two message ids and ticks, and one broadcast id: the first copy counts.
It owns the ids it was told, up to a bound. Next: broker/client/read/decoder.py
"""

from collections import OrderedDict

from broker.model.ids import BroadcastId

REMEMBERED_MAX = 16_384
"""Twice as many as a coordinator remembers: no copy comes so late that it is forgotten here."""


class SeenBroadcasts:
    """For one applier or reader; ask once for each copy, in log order."""

    def __init__(self, remembered_max: int = REMEMBERED_MAX) -> None:
        self._remembered_max = remembered_max
        self._places: OrderedDict[tuple[str, BroadcastId], int] = OrderedDict()

    def is_first(self, vchannel: str, broadcast_id: BroadcastId, message_id: int) -> bool:
        """Whether this is the copy that counts; the same copy, read again, still does."""
        key = (vchannel, broadcast_id)
        first = self._places.setdefault(key, message_id)
        if len(self._places) > self._remembered_max:
            self._places.popitem(last=False)
        return first == message_id
