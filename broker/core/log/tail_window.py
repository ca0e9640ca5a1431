"""The newest records of one pchannel, contiguous by id, bounded in bytes and age.

A reader that is behind the window reads the log instead. Why lists with a moving head and not a
deque: reading needs bisection and slices.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from broker.model.ids import MessageId, Term, TimeTick
from broker.model.record import Record

RECORD_OVERHEAD_BYTES = 400
MESSAGE_OVERHEAD_BYTES = 40
"""Memory of a record and of each of its messages beside the bodies, measured on CPython 3.11."""

SLICE_RECORDS_MAX = 1024
"""The most records of one read, so that no reader blocks the event loop for long."""

_HEAD_MAX = 1024
_EVICTED = Record(Term(0), MessageId(0), TimeTick(0), MessageId(0), 0, "", (), b"")
"""Fills the places before the head: any record of the window there would outlive its eviction."""


class TailWindow:
    """Records in [first_id, next_id). The newest group is never evicted."""

    __slots__ = ("_base_ids", "_groups", "_head", "_records", "next_id", "size_bytes")

    def __init__(self, next_id: MessageId) -> None:
        self.next_id = next_id
        self.size_bytes = 0
        self._records: list[Record] = []
        self._base_ids: list[MessageId] = []
        self._head = 0
        self._groups: deque[tuple[float, int, int]] = deque()  # pushed at, records, bytes

    @property
    def first_id(self) -> MessageId:
        """The oldest id held; `next_id` when nothing is."""
        return self._base_ids[self._head] if self._groups else self.next_id

    def push(self, records: Sequence[Record], now_s: float) -> None:
        """Add a durable group, which must continue at `next_id`."""
        size_bytes = 0
        for record in records:
            assert record.base_id == self.next_id, (record.base_id, self.next_id)
            self._records.append(record)
            self._base_ids.append(record.base_id)
            self.next_id = record.next_id
            size_bytes += _size_bytes(record)
        if records:
            self._groups.append((now_s, len(records), size_bytes))
            self.size_bytes += size_bytes

    def read(self, from_id: MessageId) -> Sequence[Record] | None:
        """Some records, from the one that holds `from_id`; None if that was evicted.

        Empty if `from_id` is `next_id` or larger.
        """
        if from_id >= self.next_id:
            return ()
        if from_id < self.first_id:
            return None
        start = bisect_right(self._base_ids, from_id, lo=self._head) - 1
        return self._records[start : start + SLICE_RECORDS_MAX]

    def evict_old(self, pushed_before_s: float) -> None:
        """Drop groups pushed before a moment."""
        while len(self._groups) > 1 and self._groups[0][0] < pushed_before_s:
            self.evict_oldest()

    def evict_beyond(self, bytes_max: int) -> None:
        """Drop the oldest groups until the rest takes no more than `bytes_max`."""
        while len(self._groups) > 1 and self.size_bytes > bytes_max:
            self.evict_oldest()

    def evict_oldest(self) -> bool:
        """Drop the oldest group; False when it is the only one."""
        if len(self._groups) <= 1:
            return False
        _, count, size_bytes = self._groups.popleft()
        self.size_bytes -= size_bytes
        dropped_to = self._head + count
        # Free the bodies at once, but shift the lists only when many places are free: linear cost.
        self._records[self._head : dropped_to] = [_EVICTED] * count
        self._head = dropped_to
        if self._head > _HEAD_MAX and self._head * 2 > len(self._records):
            del self._records[: self._head]
            del self._base_ids[: self._head]
            self._head = 0
        return True


def _size_bytes(record: Record) -> int:
    size_bytes = len(record.body) + RECORD_OVERHEAD_BYTES
    if record.batch is not None:
        keys, own = record.batch.keys, record.batch.own
        size_bytes += record.batch.shared_bytes
        size_bytes += MESSAGE_OVERHEAD_BYTES * (len(keys.sizes) + len(own.sizes))
    return size_bytes + MESSAGE_OVERHEAD_BYTES * len(record.sizes)
