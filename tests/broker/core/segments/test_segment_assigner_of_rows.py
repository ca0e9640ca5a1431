"""Changes of collections of Arrow rows, and the transactions that go on beside them."""

from dataclasses import replace

import pytest

from broker.core.log.log_recovery import RecoveryState
from broker.core.segments.segment_recovery import recovered_segments
from broker.model.effect import (
    CollectionDropped,
    Effect,
    PartitionCreated,
    PartitionDropped,
)
from broker.model.failure import Refusal, StreamingCode
from broker.model.message import (
    PREPARE_TXN,
    Appended,
    AppendedFlush,
    AppendedInTxn,
    MessageType,
    NewMessage,
)
from broker.model.snapshot import Snapshot
from broker.model.stage import StageName
from broker.model.txn import TxnContext
from tests.broker.core.segments.naive_reader import NaiveReader
from tests.broker.core.segments.shard_log import (
    CREATED,
    LIMITS,
    MISSING,
    A,
    B,
    C,
    ShardLog,
    V,
    begin,
    rows,
    unsaid,
)

OF_ROWS = replace(CREATED[0], of_rows=True)
STAGE = StageName("app", 1, 0, 0)


def opened() -> ShardLog:
    log = ShardLog()
    log.group(log.message(OF_ROWS))
    return log


def begun(log: ShardLog, vchannel: str = V[0], stage: StageName | None = None) -> TxnContext:
    (outcome,) = log.group(replace(begin(vchannel), stage=stage)).outcomes
    assert isinstance(outcome, AppendedInTxn)
    return outcome.txn


def end(txn: TxnContext, kind: int = MessageType.COMMIT_TXN) -> NewMessage:
    return NewMessage(V[0], kind, b"end", 3, txn=txn)


def outcome_of(log: ShardLog, message: NewMessage) -> Appended | Refusal | None:
    (outcome,) = log.group(message).outcomes
    return outcome


@pytest.mark.parametrize(
    "change", [OF_ROWS, PartitionCreated(C[0], MISSING, of_rows=True)], ids=["create", "partition"]
)
def test_what_is_added_ends_no_transaction(change: Effect) -> None:
    log = opened()
    txn = begun(log)
    log.group(log.message(rows(), txn=txn))
    assert isinstance(outcome_of(log, log.message(change)), Appended)
    log.group(log.message(rows(), txn=txn))
    assert isinstance(outcome_of(log, end(txn)), AppendedInTxn)
    (segment,) = log.shards.growing()
    assert (segment.rows, segment.held_by) == (2, {})
    NaiveReader(LIMITS).read(log)


def test_the_same_change_of_a_collection_in_milvuss_form_ends_them() -> None:
    for change in (CREATED[0], PartitionCreated(C[0], MISSING), PartitionDropped(C[0], B)):
        log = opened()
        txn = begun(log)
        log.group(log.message(change))
        refused = outcome_of(log, end(txn))
        assert isinstance(refused, Refusal)
        assert refused.code is StreamingCode.TRANSACTION_EXPIRED


def test_an_adopted_collection_counts_the_rows_that_follow_and_ends_nothing() -> None:
    log = ShardLog()
    txn = begun(log)
    log.group(log.batch(unsaid(), txn=txn))
    log.group(log.message(OF_ROWS), log.batch(unsaid(), txn=txn))
    assert isinstance(outcome_of(log, end(txn)), AppendedInTxn)
    (segment,) = log.shards.growing()
    assert segment.rows == 2
    assert segment.created_tick > 0
    NaiveReader(LIMITS).read(log)
    state = RecoveryState(Snapshot(), log.book.effect_of)
    for record in log.records:
        assert state.observe(record) == []
    (recovered,) = state.objects.segments.values()
    assert (recovered.id, recovered.rows) == (segment.id, 2)


def test_rows_from_before_an_adoption_are_of_no_segment_when_they_are_read_again() -> None:
    log = ShardLog()
    txn = begun(log)
    log.group(log.message(rows(), txn=txn))
    log.group(log.message(OF_ROWS))
    state = RecoveryState(Snapshot(), log.book.effect_of)
    for record in log.records:
        state.observe(record)
    log.group(log.message(rows(), txn=txn), end(txn))
    # As an owner that starts from a snapshot: the transaction is read from its begin.
    again = RecoveryState(state.snapshot(), log.book.effect_of)
    for record in log.records:
        assert again.observe(record) == []
    (segment,) = again.objects.segments.values()
    assert segment.rows == 1


def test_a_dropped_partition_ends_the_transactions_with_rows_in_it_and_no_other() -> None:
    log = opened()
    inside, beside, idle = begun(log), begun(log), begun(log)
    log.group(
        log.message(rows(partition=B), txn=inside),
        log.message(rows(partition=A), txn=inside),
        log.message(rows(partition=A), txn=beside),
    )
    dropped = outcome_of(log, log.message(PartitionDropped(C[0], B, of_rows=True)))
    assert isinstance(dropped, AppendedFlush)
    assert len(dropped.segment_ids) == 1
    refused = outcome_of(log, end(inside))
    assert isinstance(refused, Refusal)
    late = outcome_of(log, log.message(rows(partition=B), txn=beside))
    assert isinstance(late, Refusal)
    for txn in (beside, idle):
        assert isinstance(outcome_of(log, end(txn)), AppendedInTxn)
    (segment,) = log.shards.growing()
    assert (segment.partition_id, segment.rows) == (A, 1)
    NaiveReader(LIMITS).read(log)


def test_so_it_is_when_the_segment_was_sealed_and_after_a_restart() -> None:
    log = opened()
    inside, beside = begun(log), begun(log)
    log.group(log.message(rows(10, 90, partition=B), txn=inside))
    # It does not fit: the first segment is sealed, and waits for the transaction.
    log.group(log.message(rows(10, 90, partition=B), txn=beside))
    assert len(log.shards.sealed) == 1
    state = RecoveryState(Snapshot(), log.book.effect_of)
    for record in log.records:
        state.observe(record)
    objects = state.objects
    log.shards = recovered_segments(
        objects.vchannels.values(),
        objects.segments.values(),
        state.pending(),
        LIMITS,
        required=False,
    )
    dropped = outcome_of(log, log.message(PartitionDropped(C[0], B, of_rows=True)))
    assert isinstance(dropped, AppendedFlush)
    assert len(dropped.segment_ids) == 2
    assert all(isinstance(outcome_of(log, end(it)), Refusal) for it in (inside, beside))
    NaiveReader(LIMITS).read(log)


def test_a_prepared_transaction_delays_only_the_drop_of_a_partition_with_its_rows() -> None:
    log = opened()
    txn = begun(log, stage=STAGE)
    log.group(log.message(rows(partition=B), txn=txn))
    prepared = log.group(replace(end(txn, PREPARE_TXN), stage=STAGE)).outcomes[0]
    assert isinstance(prepared, AppendedInTxn)
    beside: tuple[Effect, ...] = OF_ROWS, PartitionDropped(C[0], A, of_rows=True)
    for change in beside:
        assert isinstance(outcome_of(log, log.message(change)), Appended)
    ending: tuple[Effect, ...] = PartitionDropped(C[0], B, of_rows=True), CollectionDropped(C[0])
    for change in ending:
        refused = outcome_of(log, log.message(change))
        assert isinstance(refused, Refusal)
        assert refused.code is StreamingCode.RESOURCE_ACQUIRED
    log.group(replace(end(txn), stage=STAGE))
    dropped = outcome_of(log, log.message(PartitionDropped(C[0], B, of_rows=True)))
    assert isinstance(dropped, AppendedFlush)
    NaiveReader(LIMITS).read(log)


def test_bodies_behind_a_change_of_the_same_group_lie_behind_it_in_the_log() -> None:
    log = opened()
    txn = begun(log)
    log.group(log.message(rows(), txn=txn))
    first, change, second = log.group(
        log.message(rows(), txn=txn),
        log.message(PartitionCreated(C[0], MISSING, of_rows=True)),
        log.message(rows(partition=MISSING), txn=txn),
    ).outcomes
    assert isinstance(first, Appended)
    assert isinstance(change, Appended)
    assert isinstance(second, Appended)
    assert first.id < change.id < second.id
    NaiveReader(LIMITS).read(log)


def test_a_change_on_a_vchannel_of_another_collection_or_of_none_ends_all() -> None:
    dropped = CollectionDropped(C[0])
    lives: tuple[tuple[Effect, ...], ...] = (dropped,), (dropped, CREATED[1])
    for changes in lives:
        log = opened()
        for change in changes:
            log.group(log.message(change))
        txn = begun(log)
        log.group(log.message(PartitionDropped(C[0], B, of_rows=True)))
        assert isinstance(outcome_of(log, end(txn)), Refusal)
