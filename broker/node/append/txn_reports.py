"""Reports an Appender's transactions to the TxnMonitor and answers requests about them.

Begins and ends are reported with the group that holds them, progress of open transactions with
ticks, so that no message costs a hop to another actor.
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

CHANGED_MAX: Final = 1024
"""With so many changed transactions a report is sent before the next tick."""
UNREPORTED_MAX: Final = 1024
"""Begins and ends kept while the TxnMonitor restarts; it resyncs if more were dropped."""


class TxnReports:
    """For one Appender, whose context is `writer`."""

    def __init__(self, writer: Context[Any], transactions: Transactions) -> None:
        self._writer = writer
        self._monitor_path = f"{writer.path.rpartition('/')[0]}/{TXN_MONITOR}"
        self._transactions = transactions
        self._finishing: list[Envelope[Any]] = []
        self._unreported: tuple[TxnView, ...] = ()

    def handle(self, request: TxnRequest, envelope: Envelope[Any], last_tick: TimeTick) -> None:
        """Execute a request; `last_tick` decides which leases are over."""
        match request:
            case ShowTxns():
                envelope.reply(self._transactions.views())
            case ExpireTxns():
                # Marks them only. The Appender commits after each batch of requests, which writes
                # their rollbacks in this same turn.
                self._transactions.expire(last_tick)
            case FinishTxns():
                self._transactions.closing = True
                self._finishing.append(envelope)
            case ResumeTxns():
                self._transactions.closing = False
            case _:
                assert_never(request)

    def publish(self, *, tick_closed: bool = False) -> None:
        """Report what a durable group changed; `tick_closed`: a tick was closed with it.

        While the TxnMonitor restarts, begins and ends are kept for later.
        """
        transactions = self._transactions
        turned = self._unreported + transactions.take_begun_or_ended()
        due = tick_closed or transactions.grown_count >= CHANGED_MAX
        moved = transactions.take_grown() if due else ()
        if not (turned or moved):
            return
        try:
            # By path each time: the TxnMonitor may have restarted since the last report.
            self._writer.tree.find(self._monitor_path).tell(TxnsChanged(turned, moved))
        except ActorError:
            self._unreported = turned[-UNREPORTED_MAX:]
        else:
            self._unreported = ()

    def reply_finished(self, *, refusing: bool) -> None:
        """Reply to FinishTxns once no transaction is open, or when the channel refuses writes."""
        if self._finishing and (refusing or self._transactions.open_count == 0):
            for envelope in self._finishing:
                envelope.reply(None)
            self._finishing = []
