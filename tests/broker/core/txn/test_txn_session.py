"""One transaction: what it says of itself, and how it is known again from its records."""

import pytest

from broker.core.txn.txn_session import (
    TxnSession,
    finished_session,
    outcome_of,
    replayed_end,
    sender_refusal,
    state_refusal,
    undecided_refusal,
)
from broker.core.txn.txn_state import TxnEvent, TxnState
from broker.model.failure import StreamingCode
from broker.model.ids import MessageId, Term, TimeTick, TxnId
from broker.model.message import PREPARE_TXN, AppendedInTxn, NewMessage
from broker.model.record import Record
from broker.model.snapshot import FinishedTxn, TxnEnd
from broker.model.stage import StageName
from broker.model.txn import TxnContext, TxnPart

CONTEXT = TxnContext(TxnId(70), 1000)
STAGE = StageName("job", 7, 1, 2)


def session(stage: StageName | None = None) -> TxnSession:
    return TxnSession(CONTEXT, "v", MessageId(3), TimeTick(70), stage=stage)


def record(kind: int, body: bytes) -> Record:
    part = TxnPart(TxnId(70), 1000, MessageId(3), 0)
    id, tick = MessageId(5), TimeTick(80)
    return Record(Term(1), id, tick, MessageId(3), kind, "v", (len(body),), body, part)


@pytest.mark.parametrize(
    ("kind", "body", "state"),
    [
        (901, b"c", TxnState.COMMITTED),
        (902, b"r", TxnState.ROLLED_BACK),
        (902, b"", TxnState.EXPIRED),
    ],
)
def test_an_end_is_known_again_from_its_record(kind: int, body: bytes, state: TxnState) -> None:
    assert replayed_end(record(kind, body)) is state
    landed = outcome_of(record(kind, body), session())
    assert landed == AppendedInTxn(MessageId(5), TimeTick(80), MessageId(3), CONTEXT)
    ends = {
        TxnState.COMMITTED: TxnEnd.COMMITTED,
        TxnState.ROLLED_BACK: TxnEnd.ROLLED_BACK,
        TxnState.EXPIRED: TxnEnd.EXPIRED,
    }
    found = finished_session(FinishedTxn("v", MessageId(3), 0, ends[state], landed))
    assert (found.state, found.outcome) == (state, landed)


def test_a_repeat_is_answered_with_what_it_repeats() -> None:
    it = session(STAGE)
    it.prepared = outcome_of(record(PREPARE_TXN, b""), it)
    prepare = NewMessage("v", PREPARE_TXN, b"", 0, txn=CONTEXT, stage=STAGE)
    commit = NewMessage("v", 901, b"", 0, txn=CONTEXT, stage=STAGE)
    assert it.answer_to(prepare) == it.prepared
    assert it.answer_to(commit) is None
    assert it.view().stage == STAGE
    assert not it.overdue(TimeTick(71), 1000)


def test_refusals_name_the_transaction_and_what_stands_against_it() -> None:
    it = session(STAGE)
    assert state_refusal(it, TxnEvent.COMMIT) is None
    it.state = TxnState.ROLLED_BACK
    refusal = state_refusal(it, TxnEvent.COMMIT)
    assert refusal is not None
    assert refusal.cause == "transaction 70 is rolled back; a commit is not possible"
    assert undecided_refusal(it).code is StreamingCode.RESOURCE_ACQUIRED
    other = NewMessage("v", 901, b"", 0, txn=CONTEXT, stage=StageName("job", 8, 1, 2))
    assert sender_refusal(it, other) is None
    it.state = TxnState.IN_FLIGHT
    refusal = sender_refusal(it, other)
    assert refusal is not None
    assert refusal.cause == (
        "transaction 70 belongs to part 1, attempt 2 of batch 7 of app 'job',"
        " not to part 1, attempt 2 of batch 8 of app 'job'"
    )
