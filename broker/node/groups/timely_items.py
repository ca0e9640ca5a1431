"""Leaves out messages that a group gets later, where they are released, or not any more."""

from collections.abc import Callable, Sequence
from typing import Final

from broker.core.groups.due_times import is_delayed, is_expired
from broker.model.ids import TimeTick
from broker.model.message import RELEASED
from broker.model.record import RecordSlice
from broker.ports.headers import Headers

SETTLE_S: Final = 1.0
"""What a group passes over is settled so often, when nothing is leased that would settle it."""


class TimelyItems:
    """For one Group. `expired`: messages that it did not get because they were too old."""

    def __init__(self, headers: Headers, closed: Callable[[], TimeTick]) -> None:
        self.expired = 0
        self.headers = headers
        self._closed = closed
        self._passed = TimeTick(0)
        self._settled_s = 0.0

    def parts(self, item: RecordSlice) -> Sequence[RecordSlice]:
        """What of the item is to be delivered now."""
        record, batch = item.record, item.record.batch
        if batch is None:
            return self._released(item) if record.kind == RELEASED else (item,)
        times = self.headers.delivery_times(batch.properties)
        if times is None:
            return (item,)
        # By the whole batch, as the Scheduler does: it may be cut amid the millisecond it is due.
        tick = item.batch_tick
        expired = is_expired(times, tick, self._closed())
        if not expired and not is_delayed(times, tick):
            return (item,)
        self.expired += item.end - item.first if expired else 0
        self._passed = max(self._passed, item.last_tick)
        return ()

    def passed(self, now_s: float) -> TimeTick:
        """Up to where something was passed over, once in a while; else 0."""
        if now_s - self._settled_s < SETTLE_S:
            return TimeTick(0)
        self._settled_s = now_s
        passed, self._passed = self._passed, TimeTick(0)
        return passed

    def _released(self, item: RecordSlice) -> list[RecordSlice]:
        closed, parts = self._closed(), []
        first = item.first
        for index, message in enumerate(item.record.messages(item.first), item.first):
            if index == item.end:
                break
            times = self.headers.delivery_times(message.body)
            if times is not None and is_expired(times, message.tick, closed):
                self.expired += 1
                self._passed = max(self._passed, message.tick)
                if first < index:
                    parts.append(RecordSlice(item.record, first, index))
                first = index + 1
        if first < item.end:
            parts.append(RecordSlice(item.record, first, item.end))
        return parts
