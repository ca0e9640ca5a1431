"""What a writer tells of its transactions, and what becomes of those that lost something."""

from broker.core.log.record_drafts import WriterState
from broker.core.log.sequencer import sequence
from broker.core.txn.txn_state import TxnState
from broker.model.ids import TimeTick
from broker.model.message import AppendedInTxn
from broker.model.snapshot import FinishedTxn, TxnEnd
from tests.broker.core.txn.test_transactions import ADMISSION, EXPIRED, V, Writer, code, of


def test_what_began_or_ended_is_told_once_and_bodies_of_the_others_apart_from_it() -> None:
    writer = Writer()
    transactions = writer.transactions
    one, two = writer.begin(), writer.begin(V[1])
    assert [(it.context, it.state) for it in transactions.take_begun_or_ended()] == [
        (one, TxnState.IN_FLIGHT),
        (two, TxnState.IN_FLIGHT),
    ]
    assert transactions.take_begun_or_ended() == ()
    writer.group(of(one, 2), of(two, 2, V[1]), of(two, 2, V[1]))
    writer.one(of(one, 901))
    assert [(it.context, it.state) for it in transactions.take_begun_or_ended()] == [
        (one, TxnState.COMMITTED)
    ]
    assert transactions.grown_count == 1
    assert [(it.context, it.bodies) for it in transactions.take_grown()] == [(two, 2)]
    assert transactions.grown_count == 0


def test_an_end_is_told_apart_until_it_is_durable() -> None:
    writer = Writer()
    txn, transactions = writer.begin(), writer.transactions
    state = WriterState(transactions, writer.producers)
    sequence([of(txn, 901)], TimeTick(writer.end.last_tick + 1), writer.end, ADMISSION, state)
    assert transactions.views() == ()
    assert [it.context for it in transactions.unstored_ends()] == [txn]
    assert len(transactions.stored()) == 1
    assert transactions.unstored_ends() == ()


def test_who_takes_over_rolls_back_what_may_have_lost_bodies_and_has_not_ended() -> None:
    writer = Writer()
    hurt, ended, whole = writer.begin(), writer.begin(), writer.begin()
    writer.one(of(ended, 901))
    writer.restart()
    writer.transactions.abort([hurt.id, ended.id])
    assert writer.transactions.rollbacks_due(()) == 1
    assert code(writer.one(of(hurt, 2))) is EXPIRED
    (rollback,) = [it for it in writer.records if it.kind == 902]
    assert rollback.txn is not None
    assert rollback.txn.id == hurt.id
    assert code(writer.one(of(ended, 901))) is None
    assert code(writer.one(of(whole, 901))) is None


def test_who_takes_over_remembers_exactly_the_ends_that_it_is_given() -> None:
    writer = Writer()
    kept, forgotten = writer.begin(), writer.begin()
    begin_id = writer.records[0].base_id
    end = writer.one(of(kept, 901))
    writer.one(of(forgotten, 901))
    assert isinstance(end, AppendedInTxn)
    writer.restart()
    writer.transactions.remember([FinishedTxn(V[0], begin_id, 0, TxnEnd.COMMITTED, end)])
    assert writer.transactions.take_begun_or_ended() == ()
    assert len(writer.transactions._ended) == 1
    assert writer.one(of(kept, 901)) == end
    assert code(writer.one(of(forgotten, 901))) is EXPIRED
