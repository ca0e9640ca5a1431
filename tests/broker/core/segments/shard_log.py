"""A pchannel's shard state with a log under it, and a naive reader of it who trusts nobody."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import assert_never

from broker.core.log.admission import AdmissionPolicy
from broker.core.log.log_end import LogEnd
from broker.core.log.numbered_producers import NumberedProducers
from broker.core.log.record_drafts import WriterState
from broker.core.log.sequencer import Sequenced, sequence
from broker.core.segments.segment_assigner import DecodedEffect, segment_assigner
from broker.core.segments.segment_sealing import SegmentLimits
from broker.core.segments.segment_table import SegmentTable
from broker.core.txn.transactions import Transactions
from broker.core.txn.txn_state import TxnState
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
    Truncated,
)
from broker.model.failure import Refusal
from broker.model.ids import (
    CollectionId,
    MessageId,
    PartitionId,
    PChannelName,
    SegmentId,
    Term,
    TimeTick,
    TxnId,
)
from broker.model.message import MessageType, NewMessage
from broker.model.record import Record
from broker.model.txn import TxnContext

P = PChannelName("by-dev-rootcoord-dml_3")
V = (f"{P}_7v0", f"{P}_8v0")
ADMISSION = AdmissionPolicy(P, message_bytes_max=1000, record_bytes_max=100, record_messages_max=3)
MS = 1 << 18
LIMITS = SegmentLimits(
    segment_bytes=1000, seal_proportion=0.1, row_bytes_min=10, delete_segments=True
)
"""A segment takes between 90 and 100 bytes, and 10 rows."""

KINDS: dict[type, MessageType] = {
    CollectionCreated: MessageType.CREATE_COLLECTION,
    CollectionDropped: MessageType.DROP_COLLECTION,
    PartitionCreated: MessageType.CREATE_PARTITION,
    PartitionDropped: MessageType.DROP_PARTITION,
    SchemaChanged: MessageType.ALTER_COLLECTION,
    Truncated: MessageType.TRUNCATE_COLLECTION,
    ManuallyFlushed: MessageType.MANUAL_FLUSH,
    AllFlushed: MessageType.FLUSH_ALL,
    Inserted: MessageType.INSERT,
    Deleted: MessageType.DELETE,
}


Change = (
    CollectionDropped
    | PartitionCreated
    | PartitionDropped
    | SchemaChanged
    | CollectionAltered
    | Truncated
    | ManuallyFlushed
)


class Book:
    """What each body means: the writing half of `Headers`, without a wire format."""

    def __init__(self) -> None:
        self.meanings: dict[bytes, DecodedEffect] = {}

    def body(self, meaning: DecodedEffect) -> bytes:
        body = str(len(self.meanings)).encode()
        self.meanings[body] = meaning
        return body

    def read(self, message: NewMessage) -> DecodedEffect:
        return self.meanings[message.body]

    def effect_of(self, kind: int, body: bytes) -> Effect | str | None:
        meaning = self.meanings.get(body)
        return meaning.cause if isinstance(meaning, Refusal) else meaning

    def with_segment(self, stored: bytes, segment_id: SegmentId, size_bytes: int) -> bytes:
        effect = self.meanings[stored]
        assert isinstance(effect, Inserted)
        said = effect.size_bytes or size_bytes
        return self.body(replace(effect, segment_id=segment_id, size_bytes=said))

    def with_flushed(self, kind: int, stored: bytes, segment_ids: Sequence[SegmentId]) -> bytes:
        effect = self.meanings[stored]
        if isinstance(effect, ManuallyFlushed | SchemaChanged | Truncated):
            return self.body(replace(effect, segment_ids=tuple(segment_ids)))
        return stored

    def own(self, vchannel: str, event: SegmentCreated | SegmentFlushed) -> bytes:
        return self.body(event)


@dataclass
class ShardLog:
    """An Appender's decisions without its surroundings."""

    limits: SegmentLimits = LIMITS
    required: bool = False
    book: Book = field(default_factory=Book)
    records: list[Record] = field(default_factory=list)
    transactions: Transactions = field(default_factory=Transactions)
    end: LogEnd = LogEnd(Term(1), MessageId(1), TimeTick(1_000 * MS))

    def __post_init__(self) -> None:
        self.shards = SegmentTable(self.limits, required=self.required)

    def message(
        self, effect: Effect, vchannel: str = V[0], txn: TxnContext | None = None, size: int = 5
    ) -> NewMessage:
        return NewMessage(vchannel, KINDS[type(effect)], self.book.body(effect), size, txn=txn)

    def group(self, *messages: NewMessage) -> Sequenced:
        assigner = segment_assigner(self.shards, messages, self.book.read, self.book, repeat(0.5))
        first_tick = TimeTick(self.end.last_tick + 1)
        due = self.transactions.rollbacks_due(messages)
        count = len(messages) + due
        if assigner is not None:
            count += assigner.ticks_needed
            first_tick = assigner.begin(first_tick)
        known = WriterState(self.transactions, NumberedProducers())
        result = sequence(messages, first_tick, self.end, ADMISSION, known, assigner)
        assert result.end.last_tick < self.end.last_tick + 1 + count
        self.records += result.records
        self.end = result.end
        for each in self.transactions.stored():
            committed = each.state is TxnState.COMMITTED
            self.shards.release(each.context.id, committed=committed)
        return result

    def effects(self, first: int = 0) -> list[tuple[Record, TimeTick, DecodedEffect]]:
        """Every message of the log in order, from a record on, with what it means."""
        return [
            (record, message.tick, self.book.meanings.get(message.body))
            for record in self.records[first:]
            for message in record.messages()
        ]


@dataclass
class Grown:
    """A segment as the log tells it."""

    vchannel: str
    created: SegmentCreated
    tick: TimeTick
    rows: int = 0
    size_bytes: int = 0
    inserts: int = 0
    flushed: bool = False
    closed: bool = False
    """Another one was created in its partition."""


class NaiveReader:
    """Reads a log from its beginning and asserts what was promised about every record."""

    def __init__(self, limits: SegmentLimits) -> None:
        self.limits = limits
        self.collections: dict[str, CollectionCreated] = {}
        self.segments: dict[SegmentId, Grown] = {}
        self.open: dict[TxnId, set[SegmentId]] = {}
        self.fence: dict[str, TimeTick] = {}
        self.placed: dict[TxnId, list[tuple[Grown, int, int]]] = {}
        """What a rollback takes back: a segment, rows and bytes."""
        self.records_read = 0

    def read(self, log: ShardLog) -> "NaiveReader":
        """What it has not read yet."""
        start, self.records_read = self.records_read, len(log.records)
        for record, tick, effect in log.effects(start):
            if record.txn is not None:
                self._follow(record)
            if effect is not None:
                assert not isinstance(effect, Refusal)
                self._take(record, tick, effect)
        return self

    def growing(self, vchannel: str | None = None) -> set[SegmentId]:
        """Not flushed by anything."""
        return {
            id
            for id, it in self.segments.items()
            if not it.flushed and vchannel in (None, it.vchannel)
        }

    def _follow(self, record: Record) -> None:
        assert record.txn is not None
        if record.kind in (MessageType.COMMIT_TXN, MessageType.ROLLBACK_TXN):
            self.open.pop(record.txn.id, None)
            if record.kind == MessageType.ROLLBACK_TXN:
                for it, rows, size_bytes in self.placed.pop(record.txn.id, ()):
                    it.rows -= rows
                    it.size_bytes -= size_bytes
        elif record.kind == MessageType.BEGIN_TXN:
            self.open[record.txn.id] = set()

    def _take(self, record: Record, tick: TimeTick, effect: Effect) -> None:
        vchannel = record.vchannel
        match effect:
            case CollectionCreated():
                self.collections.setdefault(vchannel, effect)
            case SegmentCreated():
                self._create(vchannel, tick, effect)
            case Inserted():
                self._insert(record, tick, effect)
            case Deleted():
                if vchannel in self.collections:
                    self._delete(record, effect)
            case SegmentFlushed(_, _, id):
                self._flush({id})
            case AllFlushed():
                self._flush(self.growing())
            case _:
                self._change(vchannel, tick, effect)

    def _create(self, vchannel: str, tick: TimeTick, created: SegmentCreated) -> None:
        assert created.segment_id not in self.segments
        assert vchannel in self.collections
        for it in self.segments.values():
            if (it.vchannel, it.created.partition_id) == (vchannel, created.partition_id):
                it.closed = True
        self.segments[created.segment_id] = Grown(vchannel, created, tick)

    def _insert(self, record: Record, tick: TimeTick, insert: Inserted) -> None:
        if record.vchannel not in self.collections:
            assert insert.segment_id == 0
            return
        it = self.segments[insert.segment_id]
        assert not it.flushed
        assert not it.closed
        assert (it.vchannel, it.created.partition_id) == (record.vchannel, insert.partition_id)
        known = self.collections[record.vchannel]
        assert insert.partition_id in known.partition_ids
        assert insert.schema_version in (None, known.schema_version)
        assert it.tick < tick
        assert it.tick > self.fence.get(record.vchannel, 0)
        it.rows += insert.rows
        it.size_bytes += insert.size_bytes
        it.inserts += 1
        assert it.rows <= it.created.rows_max
        assert it.size_bytes <= it.created.size_bytes_max <= self.limits.insert_bytes_max
        self._hold(record, it, insert.rows, insert.size_bytes)

    def _delete(self, record: Record, delete: Deleted) -> None:
        (it,) = [
            it
            for id, it in self.segments.items()
            if it.vchannel == record.vchannel
            and it.created.partition_id == ALL_PARTITIONS
            and not (it.flushed or it.closed)
        ]
        it.rows += delete.rows
        it.size_bytes += delete.size_bytes
        it.inserts += 1
        assert it.inserts == 1 or it.rows <= self.limits.deletes_rows_max
        assert it.inserts == 1 or it.size_bytes <= self.limits.deletes_bytes_max
        self._hold(record, it, delete.rows, delete.size_bytes)

    def _hold(self, record: Record, it: Grown, rows: int, size_bytes: int) -> None:
        if record.txn is not None:
            self.open[record.txn.id].add(it.created.segment_id)
            self.placed.setdefault(record.txn.id, []).append((it, rows, size_bytes))

    def _change(self, vchannel: str, tick: TimeTick, effect: Change) -> None:
        known = self.collections.get(vchannel)
        if known is None or known.collection_id != effect.collection_id:
            return
        match effect:
            case CollectionDropped():
                self._flush(self.growing(vchannel))
                del self.collections[vchannel]
            case PartitionCreated(_, partition):
                ids = (*known.partition_ids, partition)
                self.collections[vchannel] = replace(known, partition_ids=ids)
            case PartitionDropped(_, partition):
                left = tuple(each for each in known.partition_ids if each != partition)
                self.collections[vchannel] = replace(known, partition_ids=left)
                self._flush(
                    {
                        id
                        for id in self.growing(vchannel)
                        if self.segments[id].created.partition_id == partition
                    }
                )
            case SchemaChanged() | Truncated() | ManuallyFlushed():
                assert set(effect.segment_ids) == self.growing(vchannel)
                self._flush(set(effect.segment_ids))
                self.fence[vchannel] = tick
                if isinstance(effect, SchemaChanged):
                    version = effect.schema_version
                    self.collections[vchannel] = replace(known, schema_version=version)
            case CollectionAltered():
                return
            case _:
                assert_never(effect)

    def _flush(self, ids: set[SegmentId]) -> None:
        for id in ids:
            it = self.segments[id]
            assert not it.flushed
            assert it.inserts, "a segment without rows"
            assert not any(id in held for held in self.open.values())
            it.flushed = True


# ---- what tests append ----

C = (CollectionId(7), CollectionId(8))
A, B, MISSING = PartitionId(1), PartitionId(2), PartitionId(3)
CREATED = (
    CollectionCreated(C[0], (A, B), b"", 4),
    CollectionCreated(C[1], (A,), b"", 0),
)


def rows(
    count: int = 1,
    size: int = 10,
    partition: PartitionId = A,
    collection: CollectionId = C[0],
    version: int | None = None,
) -> Inserted:
    return Inserted(collection, partition, SegmentId(0), count, size, version)


def begin(vchannel: str = V[0]) -> NewMessage:
    return NewMessage(vchannel, MessageType.BEGIN_TXN, b"begin", 5, txn=TxnContext(0, 0))  # type: ignore[arg-type]
