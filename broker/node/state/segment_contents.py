"""What the segments of one log hold of each vchannel: read once, and kept in memory."""

from dataclasses import dataclass

from broker.model.ids import MessageId
from broker.model.retention.dead import Contents
from broker.model.retention.policy import SealedSegment
from broker.ports.wal import Log

PARTS_MAX = 65_536
"""Of vchannels in segments, about 10 MB; beyond, everything is read again."""


@dataclass(frozen=True, slots=True)
class _Active:
    """What an active segment held when it ended at `next_id`."""

    base_id: MessageId
    next_id: MessageId
    size_bytes: int
    contents: Contents


class SegmentContents:
    """Of one opened log. An edition has another size, and is read anew.

    Methods raise as `Log.contents`.
    """

    def __init__(self, parts_max: int = PARTS_MAX) -> None:
        self._parts_max = parts_max
        self._known: dict[MessageId, tuple[int, Contents]] = {}
        self._active = _Active(MessageId(-1), MessageId(0), 0, {})

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
        known, size = self._active, _active_bytes(log)
        if known.base_id == _active_base(log) and 0 <= size - known.size_bytes < grown_by:
            return known.contents
        return await self._read_active(log)

    async def active_below(self, log: Log, until_id: MessageId) -> Contents:
        """Of the active segment, at least all that lies below an id."""
        known = self._active
        if known.base_id == _active_base(log) and until_id <= known.next_id:
            return known.contents
        return await self._read_active(log)

    async def _read_active(self, log: Log) -> Contents:
        # Before the read: during it the segment grows, or is sealed.
        base_id, next_id, size = _active_base(log), log.bounds().next_id, _active_bytes(log)
        found = await log.contents(None)
        self._active = _Active(base_id, next_id, size, found)
        return found

    def _drop_removed(self, log: Log) -> None:
        left = {it.next_id for it in log.segments()}
        for end in self._known.keys() - left:
            del self._known[end]


def _active_base(log: Log) -> MessageId:
    sealed = log.segments()
    return sealed[-1].next_id if sealed else log.bounds().first_id


def _active_bytes(log: Log) -> int:
    return log.bounds().size_bytes - sum(it.size_bytes for it in log.segments())
