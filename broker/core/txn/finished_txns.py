"""The transactions of a log that have ended, and how: for who asks again after a restart.

It owns how many are remembered and for how long. It is fed with the records of a log in their
order; each commit or rollback says all there is to know, so what came before it is not needed.
Next: broker/core/txn/transactions.py
"""

from collections.abc import Iterable

from broker.core.txn.txn_limits import TxnLimits
from broker.model.ids import TICK_LOGICAL_BITS, TimeTick, TxnId
from broker.model.message import AppendedInTxn, MessageType
from broker.model.record import Record
from broker.model.snapshot import FinishedTxn, TxnEnd
from broker.model.txn import TxnContext

_ENDS = (MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN)


class FinishedTxns:
    """See the module. `tick`: whatever ended up to it was learnt; learning it again does nothing.

    `changed`: something ended since this was last set to False.
    """

    def __init__(
        self,
        limits: TxnLimits,
        remembered: Iterable[FinishedTxn] = (),
        tick: TimeTick = TimeTick(0),
    ) -> None:
        """`remembered` and `tick`: what `all` and `tick` gave before."""
        self.tick = tick
        self.changed = False
        self._limits = limits
        self._ended: dict[TxnId, FinishedTxn] = {}
        for each in remembered:
            self._ended[each.outcome.txn.id] = each

    def all(self) -> tuple[FinishedTxn, ...]:
        """Those that are remembered, in the order of their ends."""
        return tuple(self._ended.values())

    def learn(self, record: Record) -> None:
        """Take in a stored record; only one that ends a transaction says something."""
        if record.kind not in _ENDS or record.txn is None or record.last_tick <= self.tick:
            return
        self._ended[record.txn.id] = finished_by(record)
        self.tick = record.last_tick
        self.changed = True
        self._forget()

    def _forget(self) -> None:
        while self._ended:
            oldest = next(iter(self._ended.values()))
            lasts = oldest.outcome.tick + (self._limits.finished_ms << TICK_LOGICAL_BITS)
            if self.tick < lasts and len(self._ended) <= self._limits.finished_max:
                return
            del self._ended[oldest.outcome.txn.id]


def finished_by(record: Record) -> FinishedTxn:
    """What a commit or a rollback says of its transaction. A rollback of our own is empty."""
    part = record.txn
    assert part is not None
    end = TxnEnd.ROLLED_BACK if record.body else TxnEnd.EXPIRED
    if record.kind == MessageType.COMMIT_TXN:
        end = TxnEnd.COMMITTED
    outcome = AppendedInTxn(
        record.base_id,
        record.base_tick,
        record.last_confirmed_id,
        TxnContext(part.id, part.keepalive_ms),
    )
    return FinishedTxn(record.vchannel, part.begin_id, part.bodies, end, outcome)
