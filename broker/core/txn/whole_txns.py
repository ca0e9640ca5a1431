"""Transactions that come in one batch: begin, bodies and commit are stored in one group.

The three records lie side by side, so the numbers of the batch, which its bodies have, also find
the transaction: its begin is right before them. A crash may tear the group apart. Without the
bodies nothing is known of the batch, and a repeat is stored as if it were the first. Without the
commit the transaction is open, and a repeat commits it, unless its lease is over; then nothing of
it is ever read, and the refusal says so.
"""

from broker.core.naming import is_physical
from broker.core.txn.transactions import Transactions
from broker.core.txn.txn_session import TxnSession
from broker.model.batch import NewBatch
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import TimeTick, TxnId
from broker.model.message import BODY_TYPES, Appended, MessageType, NewMessage
from broker.model.producer_numbers import OutOfSequence
from broker.model.txn import TxnContext


def whole_refusal(batch: NewBatch, transactions: Transactions) -> Refusal | None:
    """Why a batch cannot be a transaction of its own; None if it can."""
    if is_physical(batch.vchannel):
        return _bad(f"a transaction needs a vchannel, not {batch.vchannel!r}")
    if batch.type not in BODY_TYPES:
        return _bad(f"a message of type {batch.type} cannot be part of a transaction")
    limit = transactions.limits.txn_bytes_max
    if batch.size > limit:
        cause = f"the transaction has {batch.size} bytes, the limit is {limit}; split it"
        return Refusal(StreamingCode.UNRECOVERABLE, cause)
    return None


def begin_of(batch: NewBatch) -> NewMessage:
    """The begin of its transaction; the server's default keepalive counts if it is torn apart."""
    assert batch.whole is not None
    begin = batch.whole.begin
    context = TxnContext(TxnId(0), 0)
    return NewMessage(batch.vchannel, MessageType.BEGIN_TXN, begin, len(begin), txn=context)


def commit_body(batch: NewBatch, session: TxnSession) -> bytes:
    """The stored form of the commit of its transaction."""
    assert batch.whole is not None
    return batch.whole.commit(session.context)


def repeated(
    batch: NewBatch, earlier: Appended, transactions: Transactions, tick: TimeTick
) -> tuple[TxnSession, bool] | Refusal:
    """The transaction of a batch whose bodies are stored, and whether its commit is missing.

    `earlier`: where the first body is; `tick`: the largest one that the commit may get.
    OutOfSequence with 0: what became of the transaction is not remembered.
    """
    session = transactions.find(TxnId(earlier.tick - 1))
    if session is None or session.begin_id != earlier.id - 1:
        assert batch.part.producer is not None
        return OutOfSequence(
            StreamingCode.INVALID_REQUEST_SEQ,
            f"producer {batch.part.producer.producer!r}: the bodies at sequence"
            f" {batch.part.producer.sequence} are stored, but whether their transaction was"
            " committed is not remembered",
            0,
        )
    commit = NewMessage(batch.vchannel, MessageType.COMMIT_TXN, b"", 0, txn=session.context)
    verdict = transactions.admit(commit, tick)
    if isinstance(verdict, Refusal):
        return verdict
    return session, verdict is None


def _bad(cause: str) -> Refusal:
    return Refusal(StreamingCode.INVALID_ARGUMENT, cause)
