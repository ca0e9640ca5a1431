"""The delayed messages of one vchannel that were not released yet.

Held by id and due time only, 16 bytes each, in buckets of about a second: the bucket that is due is
sorted, the others are not. Messages are released in the order of (due time, id), and only once the
closed tick has passed the due time. A message that is appended later has a larger tick, so it is
due later, or at once where it lies. So the newest released message says which others were released.
"""

from array import array
from heapq import heappop, heappush
from typing import Final

from broker.model.groups.delivery_times import ReleasedMessage
from broker.model.ids import TimeTick

SCHEDULED_MAX: Final = 1 << 20
"""Of one vchannel: about 16 MiB, and more with few messages in each of many buckets."""
_BUCKET_BITS: Final = 10
_UNSIGNED_64: Final = "Q"


class _Bucket:
    """Messages of about a second: of each its due time and its id, released ones before `start`."""

    __slots__ = ("entries", "oldest_tick", "sorted", "start")

    def __init__(self, tick: TimeTick) -> None:
        self.entries = array(_UNSIGNED_64)
        self.oldest_tick = tick
        self.sorted = True
        self.start = 0

    def __len__(self) -> int:
        return (len(self.entries) - self.start) // 2

    def first(self, now_ms: int, count_max: int) -> list[ReleasedMessage]:
        self._sort()
        found: list[ReleasedMessage] = []
        for at in range(self.start, len(self.entries), 2):
            if self.entries[at] > now_ms or len(found) == count_max:
                break
            found.append(ReleasedMessage(self.entries[at], self.entries[at + 1]))
        return found

    def drop(self, newest: tuple[int, int]) -> int:
        """Drop what comes up to this one in order; returns how many these were."""
        self._sort()
        before, entries = self.start, self.entries
        while len(self) and (entries[self.start], entries[self.start + 1]) <= newest:
            self.start += 2
        return (self.start - before) // 2

    def _sort(self) -> None:
        if not self.sorted:
            left = self.entries[self.start :]
            pairs = sorted(zip(left[::2], left[1::2], strict=True))
            self.entries = array(_UNSIGNED_64, [part for pair in pairs for part in pair])
            self.start, self.sorted = 0, True


class Schedule:
    """See the module."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._order: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, message: ReleasedMessage, tick: TimeTick) -> None:
        """A message that is to be released; `tick`: where it is read."""
        key = message.at_ms >> _BUCKET_BITS
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(tick)
            heappush(self._order, key)
        bucket.entries.extend((message.at_ms, message.id))
        bucket.sorted = False
        bucket.oldest_tick = min(bucket.oldest_tick, tick)
        self._count += 1

    def due(self, now_ms: int, count_max: int) -> list[ReleasedMessage]:
        """The first messages that are due by now, in order; they stay until `released`."""
        if not self._order or self._order[0] << _BUCKET_BITS > now_ms:
            return []
        return self._buckets[self._order[0]].first(now_ms, count_max)

    def released(self, newest: ReleasedMessage) -> None:
        """Forget this message and all before it."""
        last = newest.at_ms >> _BUCKET_BITS
        while self._order and self._order[0] <= last:
            bucket = self._buckets[self._order[0]]
            self._count -= bucket.drop((newest.at_ms, newest.id))
            if len(bucket):
                return
            del self._buckets[heappop(self._order)]

    def oldest_tick(self) -> TimeTick | None:
        """No message is read before this tick; None without messages."""
        return min([it.oldest_tick for it in self._buckets.values()], default=None)
