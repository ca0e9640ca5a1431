"""Whole lives of collections and segments, restarts among them, read by a naive reader."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.log.log_recovery import RecoveryState
from broker.core.segments.segment_recovery import recovered_segments
from broker.core.segments.segment_sealing import SealReason
from broker.core.segments.segment_table import NewSegment, SegmentTable
from broker.model.batch import Codec, NewBatch
from broker.model.effect import (
    AllFlushed,
    CollectionDropped,
    Deleted,
    Inserted,
    ManuallyFlushed,
    PartitionCreated,
    PartitionDropped,
    SchemaChanged,
    Truncated,
)
from broker.model.failure import Refusal
from broker.model.ids import CollectionId, SegmentId, TimeTick, TxnId
from broker.model.master.reservation import SegmentOrders
from broker.model.message import Appended, AppendedInTxn, MessageType, NewMessage
from broker.model.producer_numbers import ProducerPart
from broker.model.snapshot import Snapshot
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
    Form,
    ShardLog,
    V,
    begin,
    deletes_unsaid,
    rows,
    unsaid,
)
from tests.cases import cases


@dataclass(frozen=True)
class Sent:
    """A batch as its producer sends it."""

    header: Inserted | Deleted
    form: Form
    numbered: bool


PARTITIONS = st.sampled_from([A, A, B, MISSING])
ROWS = st.builds(
    rows,
    st.sampled_from([0, 1, 5, 11]),
    st.sampled_from([0, 10, 40, 100, 101]),
    PARTITIONS,
    st.sampled_from([C[0], C[0], C[1]]),
    st.sampled_from([None, 4, 5]),
)
DELETES = st.builds(
    Deleted, st.sampled_from(C), st.sampled_from([1, 300_000]), st.sampled_from([5, 20 << 20])
)
CHANGES = st.one_of(
    st.sampled_from(CREATED),
    st.sampled_from([replace(it, of_rows=True) for it in CREATED]),
    st.builds(CollectionDropped, st.sampled_from(C)),
    st.builds(PartitionCreated, st.sampled_from(C), PARTITIONS, st.booleans()),
    st.builds(PartitionDropped, st.sampled_from(C), PARTITIONS, st.booleans()),
    st.builds(PartitionDropped, st.just(C[0]), st.sampled_from([A, B]), st.just(value=True)),
    st.builds(SchemaChanged, st.sampled_from(C), st.just(b""), st.sampled_from([4, 5])),
    st.builds(Truncated, st.sampled_from(C)),
    st.builds(ManuallyFlushed, st.sampled_from(C)),
    st.just(AllFlushed()),
)
EFFECTS = st.one_of(ROWS, ROWS, ROWS, DELETES, CHANGES)
IN_TXN = st.tuples(st.just("txn"), st.integers(0, 2), st.one_of(ROWS, DELETES))
PLAIN = st.tuples(st.just("plain"), st.sampled_from([0, 0, 0, 1]), EFFECTS)
BEGIN = st.tuples(st.just("begin"), st.sampled_from([0, 0, 1]), st.none())
END = st.tuples(st.just("end"), st.integers(0, 2), st.booleans())
BETWEEN = st.sampled_from(["nothing", "nothing", "overdue", "pressure", "restart"])
HEADERS = st.one_of(
    st.just(unsaid()),
    st.just(unsaid()),
    st.just(deletes_unsaid()),
    st.builds(
        rows,
        st.sampled_from([0, 2, 3]),
        st.sampled_from([0, 10, 40, 101]),
        PARTITIONS,
        st.sampled_from([C[0], C[0], C[1]]),
        st.sampled_from([None, 4, 5]),
    ),
    st.builds(Deleted, st.sampled_from(C), st.sampled_from([0, 2, 3])),
)
FORMS = st.builds(
    Form,
    sizes=st.sampled_from([(2, 3), (1,), (0, 0, 5), (1,) * 11, (99,), (60, 60)]),
    codec=st.sampled_from([Codec.NONE, *Codec]),
    keyed=st.booleans(),
)
BATCHES = st.builds(Sent, HEADERS, FORMS, st.booleans())
BATCH = st.tuples(st.just("plain"), st.sampled_from([0, 0, 0, 1]), BATCHES)
BATCH_IN_TXN = st.tuples(st.just("txn"), st.integers(0, 2), BATCHES)
AGAIN = st.tuples(st.just("again"), st.integers(0, 3), st.none())
STEPS = st.one_of(
    *(PLAIN, PLAIN, PLAIN, IN_TXN, BEGIN, END, BATCH, BATCH, BATCH_IN_TXN, BATCH_IN_TXN, AGAIN)
)
LIVES = st.lists(st.tuples(st.lists(STEPS, max_size=8), BETWEEN), max_size=12)


@settings(max_examples=cases(300), deadline=None)
@given(LIVES, st.booleans())
def test_whatever_happens_a_naive_reader_finds_every_promise_kept(
    life: list[tuple[list[tuple[str, int, object]], str]], created: bool
) -> None:
    """`created`: before anything else; otherwise rows may come first, as before an adoption."""
    log = ShardLog()
    if created:
        log.group(log.message(CREATED[0]), log.message(CREATED[1], V[1]))
    reader = NaiveReader(LIMITS)
    program = Program(log)
    for steps, between in life:
        messages = [found for step in steps if (found := program.message(*step)) is not None]
        program.answered(messages, log.group(*messages).outcomes)
        _happen(log, between)
        reader.read(log)
        known = {it.id for it in log.shards.growing()} | set(log.shards.sealed)
        assert known == reader.growing()
        assert {it: c.id for it, c in log.shards.collections.items()} == {
            it: c.collection_id for it, c in reader.collections.items()
        }
        for it in (*log.shards.growing(), *log.shards.sealed.values()):
            told = reader.segments[it.id]
            assert (it.rows, it.size_bytes) == (told.rows, told.size_bytes)
        assert log.shards.growing_bytes == sum(it.size_bytes for it in log.shards.growing())


class Program:
    """Who appends: its transactions, and its numbered batches, some of them more than once."""

    def __init__(self, log: ShardLog) -> None:
        self._log = log
        self._txns: list[tuple[TxnContext, str]] = []
        self._numbered: list[NewBatch] = []
        self._first: dict[ProducerPart, Appended] = {}

    def message(self, what: str, number: int, detail: object) -> NewMessage | None:
        if what == "plain":
            return self._of(detail, V[number], None)
        if what == "begin":
            return begin(V[number])
        if what == "again":
            return self._numbered[-1 - number] if number < len(self._numbered) else None
        if number >= len(self._txns):
            return None
        txn, vchannel = self._txns[-1 - number]
        if what == "txn":
            return self._of(detail, vchannel, txn)
        kind = MessageType.COMMIT_TXN if detail else MessageType.ROLLBACK_TXN
        return NewMessage(vchannel, kind, b"end", 3, txn=txn)

    def answered(
        self, messages: Sequence[NewMessage], outcomes: Sequence[Appended | Refusal]
    ) -> None:
        """Note which transactions began; a numbered batch that landed has one answer for ever."""
        for message, outcome in zip(messages, outcomes, strict=True):
            if message.type == MessageType.BEGIN_TXN and isinstance(outcome, AppendedInTxn):
                self._txns.append((outcome.txn, message.vchannel))
            if not isinstance(message, NewBatch) or isinstance(outcome, Refusal):
                continue
            part = message.part.producer
            if part is not None:
                first = self._first.setdefault(part, outcome)
                assert (first.id, first.tick) == (outcome.id, outcome.tick)

    def _of(self, detail: object, vchannel: str, txn: TxnContext | None) -> NewMessage:
        if not isinstance(detail, Sent):
            return self._log.message(detail, vchannel, txn)  # type: ignore[arg-type]
        producer = None
        if detail.numbered:
            runs = [it for it in self._log.producers.runs() if it.producer == vchannel]
            producer = ProducerPart(vchannel, runs[-1].next_sequence if runs else 0)
        batch = self._log.batch(detail.header, vchannel, txn, detail.form, producer)
        if producer is not None:
            self._numbered.append(batch)
        return batch


def _happen(log: ShardLog, between: str) -> None:
    match between:
        case "overdue":
            log.shards.seal_overdue(TimeTick(log.end.last_tick + 700_000 * MS))
        case "pressure":
            log.shards.seal_some([it.id for it in log.shards.growing()][:1], SealReason.NODE_MEMORY)
        case "restart":
            _restart(log)
        case _:
            return


def _restart(log: ShardLog) -> None:
    """The next owner knows what the log says, and no more."""
    before = log.shards
    state = RecoveryState(Snapshot(), log.book.effect_of)
    for record in log.records:
        state.observe(record)
    pending = {
        txn_id: effects
        for txn_id, effects in state.pending().items()
        if log.transactions.find(txn_id) is not None
    }
    objects = state.objects
    log.producers = state.producers
    log.shards = recovered_segments(
        objects.vchannels.values(), objects.segments.values(), pending, LIMITS, required=False
    )
    held, known_held = _held(log.shards), _held(before)
    assert held == known_held
    assert log.shards.collections.keys() == before.collections.keys()
    for vchannel, it in log.shards.collections.items():
        known = before.collections[vchannel]
        assert (it.id, it.partition_ids, it.schema_version, it.default_partition_id) == (
            known.id,
            known.partition_ids,
            known.schema_version,
            known.default_partition_id,
        )


def _held(shards: SegmentTable) -> dict[SegmentId, tuple[int, int, dict[TxnId, tuple[int, int]]]]:
    """What each segment counts, and how much of it is of open transactions."""
    return {
        it.id: (it.rows, it.size_bytes, it.held_by)
        for it in (*shards.growing(), *shards.sealed.values())
    }


def growing_table() -> SegmentTable:
    """Segments 1 and 2 of collection 7, and 3 of collection 8, each with one row."""
    table = SegmentTable()
    for vchannel, collection in (("p_7v0", 7), ("p_8v0", 8)):
        table.create_collection(vchannel, CollectionId(collection), (A, B), 0)
    for id, vchannel, partition in ((1, "p_7v0", A), (2, "p_7v0", B), (3, "p_8v0", A)):
        new = NewSegment(SegmentId(id), TimeTick(id), 0.0)
        segment = table.create_segment(vchannel, partition, new, (1, 10))
        table.grow(segment, 1, 10, TimeTick(id), None)
    return table


@pytest.mark.parametrize(
    ("orders", "sealed"),
    [
        (SegmentOrders(), {}),
        (SegmentOrders(binlogs=((SegmentId(1), 32), (SegmentId(9), 99))), {}),
        (SegmentOrders(binlogs=((SegmentId(1), 33),)), {1: SealReason.BINLOGS}),
        (SegmentOrders(seal=(SegmentId(3), SegmentId(9))), {3: SealReason.FORCED}),
        (
            SegmentOrders(seal_collections=(CollectionId(7),)),
            {1: SealReason.FORCED, 2: SealReason.FORCED},
        ),
    ],
)
def test_orders_seal_the_segments_that_they_name(
    orders: SegmentOrders, sealed: dict[int, SealReason]
) -> None:
    table = growing_table()
    table.obey(orders)
    assert {id: it.sealed for id, it in table.sealed.items()} == sealed
    assert table.growing_bytes == 10 * (3 - len(sealed))
    table.obey(orders)
    assert len(table.sealed) == len(sealed)


def test_a_late_report_does_not_lower_the_number_of_files() -> None:
    table = growing_table()
    for count in (5, 3):
        table.obey(SegmentOrders(binlogs=((SegmentId(1), count),)))
    assert [it.binlogs for it in table.growing()] == [5, 0, 0]
