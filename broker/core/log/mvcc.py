"""How far each vchannel of a pchannel has data: the tick a reader must have seen to see all of it.

It owns one tick for each vchannel with recent data, and a floor for all others. It never counts
what a reader is not shown: begins, rollbacks, and bodies before their commit.

A bounded number of vchannels is remembered. The one whose data is oldest is forgotten first, and
the floor rises to its tick: an answer may then be too large, which makes a reader wait for a tick
that is closed already, but never too small.
Next: broker/node/directory.py
"""

from collections.abc import Iterable

from broker.model.ids import TimeTick
from broker.model.message import MessageType
from broker.model.record import Record

VCHANNELS_MAX = 16_384
"""About 2 MB for a pchannel that has more; a vchannel more or less costs nobody anything."""

_SHOWS_NOTHING = frozenset({MessageType.BEGIN_TXN, MessageType.ROLLBACK_TXN})


class MvccTicks:
    """One pchannel's, from the tick on that its owner wrote first."""

    def __init__(self, opened_tick: TimeTick, vchannels_max: int = VCHANNELS_MAX) -> None:
        self.persisted_tick = opened_tick
        """The newest tick that a record of its own says is closed."""
        self._floor = opened_tick
        self._vchannels_max = vchannels_max
        self._newest: dict[str, TimeTick] = {}

    def of(self, vchannel: str) -> TimeTick:
        """At least the tick of its newest durable data; of one without data, the pchannel's."""
        return max(self._floor, self._newest.get(vchannel, self._floor))

    def stored(self, records: Iterable[Record]) -> None:
        """These became durable, in this order."""
        for record in records:
            if record.kind == MessageType.TIME_TICK:
                self.persisted_tick = record.last_tick
            elif record.kind not in _SHOWS_NOTHING and not _is_body(record):
                self._move(record.vchannel, record.last_tick)

    def _move(self, vchannel: str, tick: TimeTick) -> None:
        if not vchannel:  # it is seen on every vchannel
            self._floor = tick
            self._newest.clear()
            return
        self._newest.pop(vchannel, None)
        self._newest[vchannel] = tick
        if len(self._newest) > self._vchannels_max:
            self._floor = self._newest.pop(next(iter(self._newest)))


def _is_body(record: Record) -> bool:
    return record.txn is not None and record.kind != MessageType.COMMIT_TXN
