"""What an Appender tells of its transactions, and what it is asked about them.

It owns the answers that wait for the last transaction to end, and when the TxnMonitor is told: of a
begin and of an end with the group that holds it, of how far the others have come at ticks. It
admits nothing and places nothing.
Next: broker/node/txn/txn_monitor.py
"""

from typing import Any, Final, assert_never

from actors import ActorError, Context, Envelope
from broker.core.txn.transactions import Transactions
from broker.core.txn.txn_view import TxnView
from broker.model.ids import TimeTick
from broker.node.appender_messages import (
    ExpireTxns,
    FinishTxns,
    ResumeTxns,
    ShowTxns,
    TxnRequest,
)
from broker.node.txn.txn_monitor import TXN_MONITOR, TxnsChanged

MOVED_MAX: Final = 1024
"""Transactions that may have changed before the TxnMonitor is told between two ticks."""
UNTOLD_MAX: Final = 1024
"""Begins and ends that are kept for a TxnMonitor that is not there yet."""


class TxnReports:
    """For one Appender, which is `writer`, and its transactions."""

    def __init__(self, writer: Context[Any], transactions: Transactions) -> None:
        self._writer = writer
        self._roster = f"{writer.path.rpartition('/')[0]}/{TXN_MONITOR}"
        self._transactions = transactions
        self._finishing: list[Envelope[Any]] = []
        self._untold: tuple[TxnView, ...] = ()

    def asked(self, about: TxnRequest, envelope: Envelope[Any], last_tick: TimeTick) -> None:
        """Answer, or do, what somebody wants of the transactions."""
        match about:
            case ShowTxns():
                envelope.reply(self._transactions.views())
            case ExpireTxns():
                self._transactions.expire(last_tick)
            case FinishTxns():
                self._transactions.closing = True
                self._finishing.append(envelope)
            case ResumeTxns():
                self._transactions.closing = False
            case _:
                assert_never(about)

    def stored(self, *, beats: bool = False) -> None:
        """A group is durable; `beats`: a tick was closed with it.

        A TxnMonitor that is away hears of it later, or finds out for itself if that is too much.
        """
        transactions = self._transactions
        turned = self._untold + transactions.take_begun_or_ended()
        due = beats or transactions.grown_count >= MOVED_MAX
        moved = transactions.take_grown() if due else ()
        if not (turned or moved):
            return
        try:
            self._writer.tree.find(self._roster).tell(TxnsChanged(turned, moved))
        except ActorError:
            self._untold = turned[-UNTOLD_MAX:]
        else:
            self._untold = ()

    def answer(self, *, refusing: bool) -> None:
        """Tell those who wait for the last one, when it has ended or nothing more is written."""
        if self._finishing and (refusing or self._transactions.open_count == 0):
            for envelope in self._finishing:
                envelope.reply(None)
            self._finishing = []
