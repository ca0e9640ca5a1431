"""What the segments of one log hold of each vchannel: read once, and kept in memory."""

from broker.model.ids import MessageId
from broker.model.retention.dead import Contents
from broker.model.retention.policy import SealedSegment
from broker.ports.wal import Log

PARTS_MAX = 65_536
"""Of vchannels in segments, about 10 MB; beyond, everything is read again."""


class SegmentContents:
    """Of one opened log. An edition has another size, and is read anew.

    Methods raise as `Log.contents`.
    """

    def __init__(self, parts_max: int = PARTS_MAX) -> None:
        self._parts_max = parts_max
        self._known: dict[MessageId, tuple[int, Contents]] = {}
        self._active: tuple[MessageId, int, Contents] = (MessageId(0), -1, {})

    async def sealed(self, log: Log, segment: SealedSegment) -> Contents:
        """Of a sealed segment."""
        size, end = segment.size_bytes, segment.next_id
        known = self._known.get(end)
        if known is not None and known[0] == size:
            return known[1]
        found = await log.contents(segment)
        self._drop_removed(log)
        if sum(len(it) for _, it in self._known.values()) + len(found) > self._parts_max:
            self._known.clear()
        self._known[end] = (size, found)
        return found

    async def active(self, log: Log, grown_by: int) -> Contents:
        """Of the active segment, as it is or was when it had up to `grown_by` bytes less."""
        sealed, bounds = log.segments(), log.bounds()
        start = sealed[-1].next_id if sealed else bounds.first_id
        size = bounds.size_bytes - sum(it.size_bytes for it in sealed)
        at, known_size, known = self._active
        if at == start and 0 <= size - known_size < grown_by:
            return known
        found = await log.contents(None)
        self._active = (start, size, found)
        return found

    def _drop_removed(self, log: Log) -> None:
        left = {it.next_id for it in log.segments()}
        for end in self._known.keys() - left:
            del self._known[end]
