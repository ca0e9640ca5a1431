"""What a batch is to a collection: one insert or delete, with a header or without."""

from dataclasses import replace

import pytest

from broker.client.append.arrow_batches import BODY_BYTES_MAX, ROWS_MAX
from broker.client.append.prepare import MESSAGE_BYTES_MAX
from broker.core.segments.segment_sealing import SegmentLimits
from broker.model.batch import NewBatch
from broker.model.effect import (
    CollectionCreated,
    CollectionDropped,
    Deleted,
    Inserted,
    PartitionDropped,
    SegmentCreated,
)
from broker.model.failure import Refusal, StreamingCode
from broker.model.message import Appended, AppendedInTxn, MessageType, NewMessage
from broker.model.producer_numbers import OutOfSequence, ProducerPart
from broker.node.append.group_commit import BATCH_MESSAGES_MAX
from tests.broker.core.segments.naive_reader import NaiveReader
from tests.broker.core.segments.shard_log import (
    CREATED,
    LIMITS,
    MISSING,
    A,
    B,
    C,
    Form,
    ShardLog,
    V,
    begin,
    deletes_unsaid,
    rows,
    unsaid,
)

FIRST = ProducerPart("p", 0)


def opened() -> ShardLog:
    log = ShardLog()
    log.group(log.message(CREATED[0]))
    return log


def placed(log: ShardLog) -> list[Inserted]:
    return [it for record, _, it in log.effects() if isinstance(it, Inserted) and record.batch]


def test_a_batch_is_one_placement_of_as_many_rows_as_it_has_messages() -> None:
    log = opened()
    log.group(log.batch(unsaid(), form=Form((2, 3, 4))), log.batch(unsaid()), log.message(rows()))
    (created,) = [it for _, _, it in log.effects() if isinstance(it, SegmentCreated)]
    three = Inserted(C[0], A, created.segment_id, 3, 13, None)
    assert placed(log) == [three, replace(three, rows=2, size_bytes=9)]
    kinds = [MessageType(it.kind).name for it in log.records]
    assert kinds == ["CREATE_COLLECTION", "CREATE_SEGMENT", "INSERT", "INSERT", "INSERT"]
    (segment,) = log.shards.growing()
    assert (segment.rows, segment.size_bytes) == (6, 32)
    NaiveReader(LIMITS).read(log)


def test_a_header_names_another_partition_and_its_size_holds() -> None:
    log = opened()
    log.group(log.batch(rows(0, 0, B)), log.batch(rows(2, 40, B)))
    (segment,) = log.shards.growing()
    assert placed(log) == [
        Inserted(C[0], B, segment.id, 2, 9, None),
        Inserted(C[0], B, segment.id, 2, 40, None),
    ]


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (rows(3, 0), "2 messages says 3 rows"),
        (Deleted(C[0], 3), "2 messages says 3 rows"),
        (rows(0, 0, MISSING), "has no partition 3"),
        (rows(0, 0, A, C[1]), "belongs to collection 7, not to 8"),
        (Deleted(C[1], 2), "belongs to collection 7, not to 8"),
        (rows(0, 101), "101 bytes exceeds a segment's limit of 10 rows, 100 bytes; split it"),
    ],
)
@pytest.mark.parametrize("in_txn", [False, True])
def test_a_batch_that_cannot_be_placed_leaves_no_trace_and_takes_no_number(
    header: Inserted | Deleted, why: str, in_txn: bool
) -> None:
    log = opened()
    txn = None
    if in_txn:
        (begun,) = log.group(begin()).outcomes
        assert isinstance(begun, AppendedInTxn)
        txn = begun.txn
    before = list(log.records)
    bad = log.batch(header, txn=txn, producer=FIRST)
    (outcome,) = log.group(bad).outcomes
    assert isinstance(outcome, Refusal)
    assert outcome.code is StreamingCode.UNRECOVERABLE
    assert why in outcome.cause
    assert (log.records, log.shards.growing(), len(log.producers)) == (before, [], 0)
    (taken,) = log.group(log.batch(unsaid(), txn=txn, producer=FIRST)).outcomes
    assert isinstance(taken, Appended)


def test_a_batch_of_another_schema_version_is_refused_as_an_insert_is() -> None:
    log = opened()
    old, new = (log.batch(rows(0, 0, version=version)) for version in (3, 4))
    refused, taken = log.group(old, new).outcomes
    assert isinstance(refused, Refusal)
    assert refused.code is StreamingCode.SCHEMA_VERSION_MISMATCH
    assert isinstance(taken, Appended)


def test_a_batch_of_more_rows_than_a_segment_takes_is_refused_and_says_what_to_do() -> None:
    log = opened()
    (refused,) = log.group(log.batch(unsaid(), form=Form((1,) * 11))).outcomes
    assert isinstance(refused, Refusal)
    assert "11 rows" in refused.cause
    assert "split it" in refused.cause


def test_no_batch_that_a_client_builds_is_larger_than_a_segment() -> None:
    limits = SegmentLimits()
    assert limits.insert_bytes_max > 2 * max(BODY_BYTES_MAX, MESSAGE_BYTES_MAX)
    assert limits.insert_rows_max > max(BATCH_MESSAGES_MAX, ROWS_MAX)


def test_without_partitions_a_batch_must_name_one() -> None:
    log = ShardLog()
    log.group(log.message(CollectionCreated(C[0], (), b"", 0)))
    (refused,) = log.group(log.batch(unsaid())).outcomes
    assert isinstance(refused, Refusal)
    assert "without partitions" in refused.cause


def test_a_dropped_default_partition_is_not_replaced_by_another() -> None:
    log = opened()
    log.group(log.message(PartitionDropped(C[0], A)))
    (refused,) = log.group(log.batch(unsaid())).outcomes
    assert isinstance(refused, Refusal)
    assert f"no partition {A}" in refused.cause


def test_where_no_collection_is_a_batch_is_stored_as_it_is() -> None:
    log = opened()
    header = rows(0, 0)
    plain = [log.batch(unsaid(), V[1]), log.batch(header, V[1]), log.batch(deletes_unsaid(), V[1])]
    assert all(isinstance(it, Appended) for it in log.group(*plain).outcomes)
    stored = [it.batch for it in log.records if it.batch]
    assert stored == [it.part for it in plain]
    required = ShardLog(required=True)
    (refused,) = required.group(required.batch(unsaid())).outcomes
    assert isinstance(refused, Refusal)
    assert "CreateCollection first" in refused.cause


def test_a_repeat_gets_the_first_answer_and_grows_no_segment_whatever_happened_since() -> None:
    log = opened()
    batch = log.batch(unsaid(), producer=FIRST)
    first, same = log.group(batch, batch).outcomes
    again = log.group(batch).outcomes
    (segment,) = log.shards.growing()
    assert (segment.rows, log.shards.inserted_rows) == (2, 2)
    log.group(log.message(CollectionDropped(C[0])))
    after = log.group(batch).outcomes
    assert first == same == again[0] == after[0]
    (late,) = log.group(log.batch(unsaid(), producer=ProducerPart("p", 2))).outcomes
    assert isinstance(late, Refusal)
    assert "was dropped" in late.cause
    (gap,) = log.group(log.batch(unsaid(), producer=ProducerPart("p", 9))).outcomes
    assert isinstance(gap, OutOfSequence)
    NaiveReader(LIMITS).read(log)


def test_a_batch_in_a_transaction_holds_its_segment_until_the_end() -> None:
    log = opened()
    (begun,) = log.group(begin()).outcomes
    assert isinstance(begun, AppendedInTxn)
    log.group(log.batch(unsaid(), txn=begun.txn, form=Form((60, 1))))
    log.group(log.batch(unsaid(), form=Form((60, 1))))  # seals the first segment
    log.group()
    assert [it.held_by for it in log.shards.sealed.values()] == [{begun.txn.id: (2, 65)}]
    rollback = NewMessage(V[0], MessageType.ROLLBACK_TXN, b"end", 3, txn=begun.txn)
    log.group(rollback)
    log.group()
    assert not log.shards.sealed
    NaiveReader(LIMITS).read(log)


def test_messages_after_a_new_segment_do_not_join_a_record_before_it() -> None:
    log = opened()
    log.group(log.message(rows()), log.batch(rows(0, 0, B)), log.message(rows()))
    kinds = [MessageType(it.kind).name for it in log.records[1:]]
    assert kinds == ["CREATE_SEGMENT", "INSERT", "CREATE_SEGMENT", "INSERT", "INSERT"]
    NaiveReader(LIMITS).read(log)


def test_deletes_in_a_batch_count_without_shared_properties_and_name_their_collection() -> None:
    log = opened()
    batch: NewBatch = log.batch(deletes_unsaid(), form=Form((2, 3), keyed=True))
    log.group(batch)
    (segment,) = log.shards.growing()
    assert (segment.rows, segment.size_bytes) == (2, 7)
    deleted = [it for _, _, it in log.effects() if isinstance(it, Deleted)]
    assert deleted == [Deleted(C[0], 2, 7)]
    NaiveReader(LIMITS).read(log)
