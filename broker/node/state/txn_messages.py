"""What is said about the transactions of one pchannel: to its Appender, Roster and Transactions.

It owns the vocabulary and nothing else. Requests are imperative, events are past.
Next: broker/node/append/txn_news.py
"""

from dataclasses import dataclass

from actors import Request
from broker.core.txn.txn_lease import TxnView

# ---- Appender ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShowTxns(Request[tuple[TxnView, ...]]):
    """Every open transaction as it is now, the oldest first."""


@dataclass(frozen=True, slots=True)
class ExpireTxns:
    """The lease of some transaction is over, as far as its actor can see: look, and end it."""


@dataclass(frozen=True, slots=True)
class FinishTxns(Request[None]):
    """Let no transaction begin any more; answered when none is open.

    The channel is about to be closed. Ask with the deadline that its clients have; what is open
    after that goes on with the next owner.
    """


@dataclass(frozen=True, slots=True)
class GoOnWithTxns:
    """Let transactions begin again: whoever wanted to close the channel is gone."""


AboutTxns = ShowTxns | ExpireTxns | FinishTxns | GoOnWithTxns

# ---- Roster ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TxnsMoved:
    """What became of transactions, once it is durable.

    `turned` began or ended; those in flight are alive. `moved`: how far others have come.
    """

    turned: tuple[TxnView, ...]
    moved: tuple[TxnView, ...] = ()


@dataclass(frozen=True, slots=True)
class LookAround:
    """A timer: ask which transactions are open."""


RosterMessage = TxnsMoved | LookAround

# ---- Transaction -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TxnMoved:
    """How the transaction stands now."""

    view: TxnView


@dataclass(frozen=True, slots=True)
class TxnEnded:
    """The log has its commit or its rollback: there is nothing to watch over any more."""


@dataclass(frozen=True, slots=True)
class LeaseOver:
    """A timer: compare the closed tick with the lease."""


TransactionMessage = TxnMoved | TxnEnded | LeaseOver
