"""Collections and segments of one pchannel: each rule, and whole lives read by a naive reader."""

from collections.abc import Callable

import pytest

from broker.core.segments.segment_assigner import placed_apart
from broker.core.segments.segment_sealing import SealReason, SegmentLimits
from broker.core.segments.segment_table import SegmentTable
from broker.model.channel import SegmentCounts
from broker.model.effect import (
    ALL_PARTITIONS,
    AllFlushed,
    CollectionAltered,
    CollectionCreated,
    CollectionDropped,
    Deleted,
    Effect,
    Inserted,
    ManuallyFlushed,
    PartitionCreated,
    PartitionDropped,
    SchemaChanged,
    SegmentCreated,
    SegmentFlushed,
    SegmentLevel,
    Truncated,
)
from broker.model.failure import Dropped, Refusal, StreamingCode
from broker.model.ids import CollectionId, SegmentId, TimeTick
from broker.model.message import (
    Appended,
    AppendedFlush,
    AppendedInTxn,
    MessageType,
    NewMessage,
    NewRun,
)
from broker.model.txn import TxnContext
from tests.broker.core.segments.naive_reader import NaiveReader
from tests.broker.core.segments.shard_log import (
    CREATED,
    LIMITS,
    MISSING,
    MS,
    A,
    B,
    C,
    P,
    ShardLog,
    V,
    begin,
    rows,
)

UNRECOVERABLE = StreamingCode.UNRECOVERABLE


def opened() -> ShardLog:
    log = ShardLog()
    log.group(log.message(CREATED[0]))
    return log


def kinds(log: ShardLog) -> list[MessageType]:
    return [MessageType(record.kind) for record in log.records for _ in record.sizes]


def segments_of(log: ShardLog) -> list[SegmentId]:
    return [it.segment_id for _, _, it in log.effects() if isinstance(it, Inserted)]


def end(txn: TxnContext, kind: MessageType = MessageType.COMMIT_TXN) -> NewMessage:
    return NewMessage(V[0], kind, b"end", 3, txn=txn)


def test_the_first_insert_creates_its_segment_and_the_next_ones_share_it() -> None:
    log = opened()
    log.group(log.message(rows()), log.message(rows()), log.message(rows(partition=B)))
    log.group(log.message(rows()))
    assert kinds(log) == [
        MessageType.CREATE_COLLECTION,
        MessageType.CREATE_SEGMENT,
        MessageType.INSERT,
        MessageType.INSERT,
        MessageType.CREATE_SEGMENT,
        MessageType.INSERT,
        MessageType.INSERT,
    ]
    first, second, other, third = segments_of(log)
    assert first == second == third != other
    created = next(it for _, _, it in log.effects() if isinstance(it, SegmentCreated))
    assert created == SegmentCreated(C[0], A, first, 95, 10, SegmentLevel.ROWS, 4, 2)
    NaiveReader(LIMITS).read(log)


def test_an_insert_behind_its_create_collection_in_one_group_has_a_segment_too() -> None:
    log = ShardLog()
    log.group(log.message(CREATED[0]), log.message(rows()))
    assert segments_of(log) != [0]
    NaiveReader(LIMITS).read(log)


def test_a_vchannel_that_no_collection_was_created_on_takes_any_insert_as_it_is() -> None:
    log = opened()
    unread = log.message(rows(), V[1])
    result = log.group(unread, NewMessage(V[1], 2, b"no header", 9))
    assert all(isinstance(outcome, Appended) for outcome in result.outcomes)
    assert [record.body for record in log.records[1:]] == [unread.body + b"no header"]


def test_without_collections_a_group_has_no_turn() -> None:
    log = ShardLog()
    log.group(NewMessage(V[0], 2, b"no header", 9))  # the book would not find it
    assert log.shards.idle


@pytest.mark.parametrize(
    ("insert", "code"),
    [
        (rows(partition=MISSING), UNRECOVERABLE),
        (rows(collection=C[1]), UNRECOVERABLE),
        (rows(count=11), UNRECOVERABLE),
        (rows(size=101), UNRECOVERABLE),
        (rows(version=3), StreamingCode.SCHEMA_VERSION_MISMATCH),
        (Deleted(C[1], 1), UNRECOVERABLE),
        (rows(version=4), None),
        (rows(version=None), None),
        (rows(size=100), None),
    ],
)
@pytest.mark.parametrize("in_txn", [False, True])
def test_rows_that_cannot_be_placed_are_refused_and_leave_no_trace(
    insert: Inserted | Deleted, code: StreamingCode | None, in_txn: bool
) -> None:
    log = opened()
    txn = None
    if in_txn:
        (begun,) = log.group(begin()).outcomes
        assert isinstance(begun, AppendedInTxn)
        txn = begun.txn
    before = list(log.records)
    (outcome,) = log.group(log.message(insert, txn=txn)).outcomes
    if code is None:
        assert isinstance(outcome, Appended)
    else:
        assert isinstance(outcome, Refusal)
        assert outcome.code is code
        assert log.records == before
        assert not log.shards.growing()
        assert log.shards.growing_bytes == 0
        assert log.transactions.open_bytes == 0


def test_a_header_that_cannot_be_read_is_refused_where_it_matters() -> None:
    log = opened()
    bad = Refusal(UNRECOVERABLE, "no partition")
    for kind in (MessageType.INSERT, MessageType.MANUAL_FLUSH):
        message = NewMessage(V[0], kind, log.book.body(bad), 5)
        assert log.group(message).outcomes == (bad,)
    (outcome,) = log.group(NewMessage(V[1], MessageType.INSERT, log.book.body(bad), 5)).outcomes
    assert isinstance(outcome, Appended)


def test_a_creation_that_names_no_collection_opens_nothing() -> None:
    log = ShardLog()
    created = NewMessage(V[0], MessageType.CREATE_COLLECTION, log.book.body(None), 5)
    unread = log.message(rows())
    result = log.group(created, unread)
    assert all(isinstance(outcome, Appended) for outcome in result.outcomes)
    assert log.records[-1].body == unread.body
    assert log.shards.idle


def test_where_a_collection_is_required_rows_without_one_are_refused() -> None:
    log = ShardLog(required=True)
    for effect in (rows(), Deleted(C[0], 1)):
        (outcome,) = log.group(log.message(effect)).outcomes
        assert isinstance(outcome, Refusal)
        assert outcome.code is UNRECOVERABLE
    assert not log.records
    log.group(log.message(CREATED[0]), log.message(rows()))
    assert segments_of(log)


def test_after_its_drop_a_collection_takes_no_more_rows_and_may_be_created_again() -> None:
    log = opened()
    result = log.group(
        log.message(rows()), log.message(CollectionDropped(C[0])), log.message(rows())
    )
    assert isinstance(result.outcomes[2], Dropped)
    assert "was dropped" in result.outcomes[2].cause
    log.group(log.message(CREATED[0]), log.message(rows()))
    assert len(set(segments_of(log))) == 2
    NaiveReader(LIMITS).read(log)


def test_rows_that_are_rolled_back_make_room_for_others() -> None:
    log = opened()
    log.group(log.message(rows(2, 20)))
    (outcome,) = log.group(begin()).outcomes
    assert isinstance(outcome, AppendedInTxn)
    log.group(log.message(rows(6, 60), txn=outcome.txn))
    (segment,) = log.shards.growing()
    assert (segment.rows, segment.size_bytes, log.shards.growing_bytes) == (8, 80, 80)
    log.group(NewMessage(V[0], MessageType.ROLLBACK_TXN, b"end", 3, txn=outcome.txn))
    assert (segment.rows, segment.size_bytes, log.shards.growing_bytes) == (2, 20, 20)
    log.group(log.message(rows(7, 70)))
    assert len(set(segments_of(log))) == 1
    NaiveReader(LIMITS).read(log)


def test_only_so_many_dropped_collections_are_remembered() -> None:
    log = ShardLog()
    for number in range(4100):
        vchannel = f"{P}_{number}v0"
        created = CollectionCreated(CollectionId(number), (A,), b"", 0)
        log.shards.create_collection(vchannel, created.collection_id, (A,), 0)
        log.shards.drop_collection(vchannel)
    assert not log.shards.is_ours(f"{P}_0v0")
    assert log.shards.is_ours(f"{P}_4099v0")


def test_a_full_segment_is_sealed_and_flushed_with_the_next_group() -> None:
    log = opened()
    log.group(*[log.message(rows(size=50)) for _ in range(3)])
    assert kinds(log)[1:] == [MessageType.CREATE_SEGMENT, MessageType.INSERT] * 3
    assert len(set(segments_of(log))) == 3
    assert [it.sealed for it in log.shards.sealed.values()] == [SealReason.CAPACITY] * 2
    log.group()
    flushed = [it.segment_id for _, _, it in log.effects() if isinstance(it, SegmentFlushed)]
    assert flushed == segments_of(log)[:2]
    assert not log.shards.sealed
    NaiveReader(LIMITS).read(log)


@pytest.mark.parametrize("kind", [MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN])
def test_a_sealed_segment_is_flushed_after_the_transactions_that_hold_it(
    kind: MessageType,
) -> None:
    log = opened()
    (begun,) = log.group(begin()).outcomes
    assert isinstance(begun, AppendedInTxn)
    log.group(
        log.message(rows(size=50), txn=begun.txn), log.message(Deleted(C[0], 1), txn=begun.txn)
    )
    log.group(log.message(rows(size=50)))
    log.group()
    assert MessageType.FLUSH not in kinds(log)
    log.group(end(begun.txn, kind))
    assert MessageType.FLUSH not in kinds(log)
    log.group()
    assert kinds(log)[-1] == MessageType.FLUSH
    NaiveReader(LIMITS).read(log)


@pytest.mark.parametrize(
    "flush",
    [
        lambda: ManuallyFlushed(C[0]),
        lambda: Truncated(C[0]),
        lambda: SchemaChanged(C[0], b"", 5),
        AllFlushed,
    ],
)
def test_what_flushes_names_all_that_grew_and_later_rows_get_a_new_segment(
    flush: Callable[[], Effect],
) -> None:
    log = opened()
    log.group(log.message(CREATED[1], V[1]), log.message(rows(collection=C[1]), V[1]))
    result = log.group(
        log.message(rows(size=60)),
        log.message(rows(size=60)),
        log.message(rows(partition=B)),
        log.message(Deleted(C[0], 2)),
        log.message(flush()),
        log.message(rows()),
    )
    landed = result.outcomes[4]
    assert isinstance(landed, AppendedFlush)
    assert len(landed.segment_ids) == (5 if isinstance(flush(), AllFlushed) else 4)
    assert segments_of(log)[-1] not in landed.segment_ids
    NaiveReader(LIMITS).read(log)


def test_a_flush_of_a_collection_that_is_not_there_is_stored_and_flushes_nothing() -> None:
    log = opened()
    log.group(log.message(rows()))
    for effect, vchannel in (
        (ManuallyFlushed(C[1]), V[0]),
        (ManuallyFlushed(C[0]), V[1]),
        (PartitionDropped(C[0], MISSING), V[0]),
        (PartitionCreated(C[0], A), V[0]),
        (CREATED[0], V[0]),
    ):
        (outcome,) = log.group(log.message(effect, vchannel)).outcomes
        assert isinstance(outcome, Appended)
    assert len(log.shards.growing()) == 1


def test_a_change_that_brings_no_schema_flushes_nothing() -> None:
    log = opened()
    body = log.book.body(CollectionAltered(C[0]))
    log.group(log.message(rows()), NewMessage(V[0], MessageType.ALTER_COLLECTION, body, 5))
    assert len(log.shards.growing()) == 1


def test_copies_on_the_control_channel_change_nothing_but_a_flush_of_all_does() -> None:
    log = opened()
    control = f"{P}_vcchan"
    log.group(log.message(rows()))
    log.group(log.message(CollectionDropped(C[0]), control), log.message(CREATED[1], control))
    assert list(log.shards.collections) == [V[0]]
    assert len(log.shards.growing()) == 1
    log.group(log.message(AllFlushed(), control))
    assert not log.shards.growing()


def test_an_exclusive_message_fails_the_transactions_whose_rows_it_flushes() -> None:
    log = opened()
    (begun,) = log.group(begin()).outcomes
    assert isinstance(begun, AppendedInTxn)
    result = log.group(
        log.message(rows(), txn=begun.txn), log.message(ManuallyFlushed(C[0])), end(begun.txn)
    )
    assert isinstance(result.outcomes[1], AppendedFlush)
    assert isinstance(result.outcomes[2], Refusal)
    assert kinds(log)[-2:] == [MessageType.ROLLBACK_TXN, MessageType.MANUAL_FLUSH]
    assert not log.shards.sealed
    NaiveReader(LIMITS).read(log)


def test_deletes_are_gathered_in_a_segment_of_their_own() -> None:
    log = opened()
    log.group(log.message(Deleted(C[0], 3)), log.message(Deleted(C[0], 600_000)))
    (created, other) = [it for _, _, it in log.effects() if isinstance(it, SegmentCreated)]
    assert (created.level, created.partition_id) == (SegmentLevel.DELETES, ALL_PARTITIONS)
    assert (created.rows_max, other.rows_max) == (500_000, 600_000)
    assert [it.sealed for it in log.shards.sealed.values()] == [SealReason.CAPACITY]
    NaiveReader(LIMITS).read(log)


def test_a_segment_of_deletes_is_full_by_bytes_too() -> None:
    log = opened()
    half = Deleted(C[0], 1, 16 << 20)
    log.group(*[log.message(half) for _ in range(5)])
    sizes = [it.size_bytes >> 20 for it in (*log.shards.sealed.values(), *log.shards.growing())]
    assert sizes == [32, 32, 16]
    NaiveReader(LIMITS).read(log)


def test_by_default_a_delete_creates_no_segment_as_in_milvus() -> None:
    log = opened()
    log.shards.limits = SegmentLimits()
    result = log.group(log.message(Deleted(C[0], 3)), log.message(rows()))
    assert not any(isinstance(it, Refusal) for it in result.outcomes)
    (created,) = [it for _, _, it in log.effects() if isinstance(it, SegmentCreated)]
    assert (created.level, created.storage_version) == (SegmentLevel.ROWS, 2)


def test_what_is_overdue_or_chosen_is_sealed_once() -> None:
    log = opened()
    log.group(log.message(rows()), log.message(rows(partition=B)))
    first, second = log.shards.growing()
    log.shards.seal_some([second.id, SegmentId(99)], SealReason.NODE_MEMORY)
    log.shards.seal_overdue(TimeTick(log.end.last_tick + 86_399_000 * MS))
    assert log.shards.growing() == [first]
    assert log.shards.counts() == SegmentCounts(growing=1, growing_bytes=10, sealed=1)
    log.shards.seal_overdue(TimeTick(log.end.last_tick + 86_401_000 * MS))
    assert [it.sealed for it in log.shards.sealed.values()] == [
        SealReason.NODE_MEMORY,
        SealReason.LIFETIME,
    ]
    assert log.shards.growing_bytes == 0


def test_runs_are_placed_apart_from_the_create_of_their_collection_on() -> None:
    def run(vchannel: str) -> NewRun:
        return NewRun(vchannel, MessageType.INSERT, b"", 3, bodies=(b"a", b"bc"), sizes=(1, 2))

    create = NewMessage(V[0], MessageType.CREATE_COLLECTION, b"", 0)
    assert placed_apart(SegmentTable(), [run(V[0])]) is None
    assert placed_apart(SegmentTable(), [run(V[0]), create, run(V[1])]) is None
    parts = placed_apart(SegmentTable(), [run(V[0]), create, run(V[0]), run(V[1])])
    assert parts is not None
    assert [list(part) for part in parts] == [
        [run(V[0])],
        [create],
        run(V[0]).messages(),
        [run(V[1])],
    ]
    known = SegmentTable()
    known.create_collection(V[0], C[0], (A,), 1)
    assert placed_apart(known, [NewMessage(V[0], MessageType.INSERT, b"a", 1)]) is None
    assert placed_apart(known, [run(V[0])]) == [run(V[0]).messages()]
