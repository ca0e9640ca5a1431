"""Ended transactions: what their last record says, and for how long anybody remembers."""

import pytest

from broker.core.txn.finished_txns import FinishedTxns
from broker.core.txn.txn_limits import TxnLimits
from broker.model.ids import MessageId, Term, TimeTick, TxnId
from broker.model.message import AppendedInTxn, MessageType
from broker.model.record import Record
from broker.model.snapshot import FinishedTxn, TxnEnd
from broker.model.txn import TxnContext, TxnPart

MS = 1 << 18
V = "by-dev-rootcoord-dml_0_7v0"


def end(txn: int, tick: int, kind: int = 901, body: bytes = b"end") -> Record:
    return Record(
        term=Term(1),
        base_id=MessageId(tick),
        base_tick=TimeTick(tick),
        last_confirmed_id=MessageId(txn),
        kind=kind,
        vchannel=V,
        sizes=(len(body),),
        body=body,
        txn=TxnPart(TxnId(txn), 500, MessageId(txn), 3),
    )


@pytest.mark.parametrize(
    ("kind", "body", "how"),
    [
        (MessageType.COMMIT_TXN, b"c", TxnEnd.COMMITTED),
        (MessageType.ROLLBACK_TXN, b"r", TxnEnd.ROLLED_BACK),
        (MessageType.ROLLBACK_TXN, b"", TxnEnd.EXPIRED),
    ],
)
def test_the_last_record_says_how_it_ended_and_what_was_answered(
    kind: int, body: bytes, how: TxnEnd
) -> None:
    finished = FinishedTxns(TxnLimits())
    finished.learn(end(5, 9, kind, body))
    outcome = AppendedInTxn(MessageId(9), TimeTick(9), MessageId(5), TxnContext(TxnId(5), 500))
    assert finished.all() == (FinishedTxn(V, MessageId(5), 3, how, outcome),)
    assert finished.changed


def test_other_records_and_those_learnt_before_say_nothing() -> None:
    finished = FinishedTxns(TxnLimits())
    finished.learn(end(5, 8, MessageType.INSERT))
    assert not finished.changed
    finished.learn(end(5, 9))
    again = FinishedTxns(TxnLimits(), finished.all(), finished.tick)
    again.learn(end(5, 9))
    assert again.all() == finished.all()
    assert not again.changed


def test_old_ones_and_too_many_are_forgotten_in_the_order_of_their_ends() -> None:
    finished = FinishedTxns(TxnLimits(finished_max=2, finished_ms=10))
    for tick, txn in enumerate((3, 1, 2), start=10):
        finished.learn(end(txn, tick))
    assert [each.outcome.txn.id for each in finished.all()] == [1, 2]
    finished.learn(end(9, 11 + 10 * MS))
    assert [each.outcome.txn.id for each in finished.all()] == [2, 9]
    nothing = FinishedTxns(TxnLimits(finished_max=0))
    nothing.learn(end(9, 11))
    assert nothing.all() == ()
