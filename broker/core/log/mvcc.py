"""The MVCC tick of each vchannel: a reader that has reached this tick has seen all of its data.

Keeps one tick for each vchannel with recent data, and a common floor for all others. Records that
show readers nothing (begins, rollbacks, uncommitted bodies, changes of groups, purges, compactions)
do not count: the retention of a collection would take the record of its own purge for data.

The number of vchannels is bounded. The one with the oldest data is forgotten first and the floor
rises to its tick. The answer for it may then be too large, which makes a reader wait for a tick
that is already closed, but it is never too small.
"""

from collections.abc import Iterable

from broker.model.ids import TimeTick
from broker.model.message import COMPACTION, GROUP_CHANGE, PURGE, MessageType
from broker.model.record import Record

VCHANNELS_MAX = 16_384
"""Takes about 2 MB when reached."""

_SHOWS_NOTHING = frozenset(
    {MessageType.BEGIN_TXN, MessageType.ROLLBACK_TXN, GROUP_CHANGE, PURGE, COMPACTION}
)


class MvccTicks:
    """The ticks of one pchannel; `opened_tick` is the first that its owner wrote."""

    def __init__(self, opened_tick: TimeTick, vchannels_max: int = VCHANNELS_MAX) -> None:
        self.persisted_tick = opened_tick
        """The newest tick that a time tick record closed."""
        self._floor = opened_tick
        self._vchannels_max = vchannels_max
        self._newest: dict[str, TimeTick] = {}

    def of(self, vchannel: str) -> TimeTick:
        """At least the tick of its newest durable data; without data, the floor."""
        return max(self._floor, self._newest.get(vchannel, self._floor))

    def is_exact(self, vchannel: str) -> bool:
        """Whether `of` is the tick of its newest data, not the floor."""
        return self._newest.get(vchannel, self._floor) > self._floor

    def stored(self, records: Iterable[Record]) -> None:
        """Take note of records that became durable, in log order."""
        for record in records:
            if record.kind == MessageType.TIME_TICK:
                self.persisted_tick = record.last_tick
            elif record.kind not in _SHOWS_NOTHING and not _is_body(record):
                self._move(record.vchannel, record.last_tick)

    def _move(self, vchannel: str, tick: TimeTick) -> None:
        if not vchannel:  # readers of every vchannel see it
            self._floor = tick
            self._newest.clear()
            return
        # Removed and inserted again, so that the first key has the oldest data.
        self._newest.pop(vchannel, None)
        self._newest[vchannel] = tick
        if len(self._newest) > self._vchannels_max:
            self._floor = self._newest.pop(next(iter(self._newest)))


def _is_body(record: Record) -> bool:
    return record.txn is not None and record.kind != MessageType.COMMIT_TXN
