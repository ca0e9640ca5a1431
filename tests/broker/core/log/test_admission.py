"""Each reason to refuse a message, said with the value that is wrong."""

from dataclasses import replace

import pytest

from broker.core.log.admission import (
    AdmissionPolicy,
    admission_refusal,
    covers_pchannel,
)
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PChannelName, TimeTick, TxnId
from broker.model.message import GROUP_CHANGE, PREPARE_TXN, PURGE, MessageType, NewMessage
from broker.model.stage import StageName
from broker.model.txn import TxnContext

P = PChannelName("by-dev-rootcoord-dml_3")
ADMISSION = AdmissionPolicy(P, message_bytes_max=100)
GOOD = NewMessage(f"{P}_7v0", MessageType.INSERT, b"body", 4)
TICK = TimeTick(2_000)


def test_what_may_come_is_not_refused() -> None:
    assert admission_refusal(GOOD, TICK, ADMISSION) is None


def test_a_closed_pchannel_answers_everything_alike() -> None:
    closed = Refusal(StreamingCode.ON_SHUTDOWN, "closing")
    assert admission_refusal(GOOD, TICK, replace(ADMISSION, closed=closed)) is closed


def test_a_full_disk_refuses_what_takes_space_and_takes_what_frees_it() -> None:
    full = Refusal(StreamingCode.ON_SHUTDOWN, "No space left")
    admission = replace(ADMISSION, full=full)
    in_txn = TxnContext(TxnId(5), 0)
    for kind in (MessageType.INSERT, MessageType.DELETE, MessageType.BEGIN_TXN):
        message = replace(GOOD, type=kind, txn=in_txn)
        assert admission_refusal(message, TICK, admission) is full
    for frees in (PURGE, GROUP_CHANGE, MessageType.DROP_COLLECTION, MessageType.COMMIT_TXN):
        message = replace(GOOD, type=frees, txn=in_txn)
        assert admission_refusal(message, TICK, admission) is not full


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"size": 101}, StreamingCode.UNRECOVERABLE, "101 bytes"),
        ({"type": MessageType.TIME_TICK}, StreamingCode.UNRECOVERABLE, "type 1 "),
        ({"type": 950}, StreamingCode.UNRECOVERABLE, "type 950"),
        ({"type": MessageType.COMMIT_TXN}, StreamingCode.INVALID_ARGUMENT, "transaction"),
        ({"vchannel": "elsewhere_1v0"}, StreamingCode.UNRECOVERABLE, "elsewhere_1v0"),
        ({"barrier_tick": 2_000}, StreamingCode.INVALID_ARGUMENT, "2000"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, object], code: StreamingCode, words: str) -> None:
    wrong = replace(GOOD, **change)  # type: ignore[arg-type]
    refusal = admission_refusal(wrong, TICK, ADMISSION)
    assert refusal is not None
    assert refusal.code is code
    assert words in refusal.cause


def test_an_end_that_names_its_transaction_is_for_that_to_judge() -> None:
    end = replace(GOOD, type=MessageType.COMMIT_TXN, txn=TxnContext(TxnId(5), 0))
    assert admission_refusal(end, TICK, ADMISSION) is None


def test_the_word_on_a_staged_transaction_may_have_any_size_its_begin_may_not() -> None:
    of_stage = replace(GOOD, size=101, txn=TxnContext(TxnId(5), 0), stage=StageName("job", 7, 0, 0))
    for kind in (PREPARE_TXN, MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN):
        assert admission_refusal(replace(of_stage, type=kind), TICK, ADMISSION) is None
    refusal = admission_refusal(replace(of_stage, type=MessageType.BEGIN_TXN), TICK, ADMISSION)
    assert refusal is not None
    assert "101 bytes" in refusal.cause


def test_the_logs_own_messages_need_a_vchannel_and_a_purge_is_in_no_transaction() -> None:
    for kind in (PURGE, GROUP_CHANGE):
        assert admission_refusal(replace(GOOD, type=kind), TICK, ADMISSION) is None
        assert admission_refusal(replace(GOOD, type=kind, vchannel=""), TICK, ADMISSION)
    in_txn = replace(GOOD, type=PURGE, txn=TxnContext(TxnId(5), 0))
    assert admission_refusal(in_txn, TICK, ADMISSION)


def test_what_covers_a_pchannel() -> None:
    assert covers_pchannel(replace(GOOD, vchannel=""), P)
    assert covers_pchannel(replace(GOOD, vchannel=P), P)
    assert covers_pchannel(replace(GOOD, pchannel_level=True), P)
    assert covers_pchannel(replace(GOOD, type=MessageType.FLUSH_ALL), P)
    assert not covers_pchannel(GOOD, P)
