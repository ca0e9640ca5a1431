"""The transactions of a log that ended recently, to answer a repeated commit after a restart.

Fed with records in log order. A commit or rollback record carries everything needed, so earlier
records of the transaction need not be seen.
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
    """The remembered transactions. `tick`: all ends up to it were learnt; repeats are skipped.

    `changed`: a transaction ended since this was last set to False.
    """

    def __init__(
        self,
        limits: TxnLimits,
        remembered: Iterable[FinishedTxn] = (),
        tick: TimeTick = TimeTick(0),
    ) -> None:
        """`remembered` and `tick`: the saved values of `all` and `tick`."""
        self.tick = tick
        self.changed = False
        self._limits = limits
        self._ended: dict[TxnId, FinishedTxn] = {}
        for each in remembered:
            self._ended[each.outcome.txn.id] = each

    def all(self) -> tuple[FinishedTxn, ...]:
        """The remembered transactions, in order of their ends."""
        return tuple(self._ended.values())

    def learn(self, record: Record) -> None:
        """Learn from a stored record; only commits and rollbacks matter."""
        if record.kind not in _ENDS or record.txn is None or record.last_tick <= self.tick:
            return
        self._ended[record.txn.id] = finished_by(record)
        self.tick = record.last_tick
        self.changed = True
        self._forget()

    def _forget(self) -> None:
        while self._ended:
            oldest = next(iter(self._ended.values()))
            # By ticks and not by a clock: a replay forgets the same, whenever it runs.
            lasts = oldest.outcome.tick + (self._limits.finished_ms << TICK_LOGICAL_BITS)
            if self.tick < lasts and len(self._ended) <= self._limits.finished_max:
                return
            del self._ended[oldest.outcome.txn.id]


def finished_by(record: Record) -> FinishedTxn:
    """The end of a transaction by its record; a rollback that the log itself wrote has no body."""
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
