"""A pchannel's shard state with a log under it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

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
from broker.model.batch import NO_KEYS, BatchKeys, BatchPart, Codec, NewBatch, ticks_of
from broker.model.effect import (
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
)
from broker.model.message import MessageType, NewMessage
from broker.model.producer_numbers import ProducerPart
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
        self.before: dict[bytes, DecodedEffect] = {}
        """Of a batch as it is stored: what its producer's header said."""

    def body(self, meaning: DecodedEffect) -> bytes:
        body = str(len(self.meanings)).encode()
        self.meanings[body] = meaning
        return body

    def read(self, message: NewMessage) -> DecodedEffect:
        return self.meanings[
            message.part.properties if isinstance(message, NewBatch) else message.body
        ]

    def effect_of(self, kind: int, stored: bytes, *, of_batch: bool = False) -> Effect | str | None:
        meaning = self.meanings.get(stored)
        return meaning.cause if isinstance(meaning, Refusal) else meaning

    def with_segment(self, stored: bytes, segment_id: SegmentId, size_bytes: int) -> bytes:
        effect = self.meanings[stored]
        assert isinstance(effect, Inserted)
        said = effect.size_bytes or size_bytes
        return self.body(replace(effect, segment_id=segment_id, size_bytes=said))

    def with_rows(
        self, properties: bytes, rows: Inserted | Deleted, segment_id: SegmentId
    ) -> bytes:
        body = self.body(replace(rows, segment_id=segment_id))
        self.before[body] = self.meanings[properties]
        return body

    def with_flushed(self, kind: int, stored: bytes, segment_ids: Sequence[SegmentId]) -> bytes:
        effect = self.meanings[stored]
        if isinstance(effect, ManuallyFlushed | SchemaChanged | Truncated):
            return self.body(replace(effect, segment_ids=tuple(segment_ids)))
        return stored

    def own(self, vchannel: str, event: SegmentCreated | SegmentFlushed) -> bytes:
        return self.body(event)


@dataclass(frozen=True)
class Form:
    """How a batch is sent."""

    sizes: tuple[int, ...] = (2, 3)
    codec: Codec = Codec.NONE
    keyed: bool = False

    @property
    def keys(self) -> BatchKeys:
        """Of two bytes each, but none for the first message."""
        if not self.keyed:
            return NO_KEYS
        rest = len(self.sizes) - 1
        return BatchKeys((0, *[3] * rest), b"kk" * rest)


@dataclass
class ShardLog:
    """An Appender's decisions without its surroundings."""

    limits: SegmentLimits = LIMITS
    required: bool = False
    book: Book = field(default_factory=Book)
    records: list[Record] = field(default_factory=list)
    transactions: Transactions = field(default_factory=Transactions)
    producers: NumberedProducers = field(default_factory=NumberedProducers)
    end: LogEnd = LogEnd(Term(1), MessageId(1), TimeTick(1_000 * MS))

    def __post_init__(self) -> None:
        self.shards = SegmentTable(self.limits, required=self.required)

    def message(
        self, effect: Effect, vchannel: str = V[0], txn: TxnContext | None = None, size: int = 5
    ) -> NewMessage:
        return NewMessage(vchannel, KINDS[type(effect)], self.book.body(effect), size, txn=txn)

    def batch(
        self,
        effect: Inserted | Deleted,
        vchannel: str = V[0],
        txn: TxnContext | None = None,
        form: Form | None = None,
        producer: ProducerPart | None = None,
    ) -> NewBatch:
        """A batch whose header says this; `unsaid` and `deletes_unsaid`: it has none."""
        form = form or Form()
        part = BatchPart(self.book.body(effect), form.codec, form.keys, producer)
        body = b"x" * sum(form.sizes)
        # What a producer counts is more than the payloads: properties and keys, too.
        size = len(body) + len(form.keys.body) + 4
        kind = KINDS[type(effect)]
        if form.codec is not Codec.NONE:
            body = body[: len(body) // 2]
        return NewBatch(vchannel, kind, body, size, txn=txn, sizes=form.sizes, part=part)

    def group(self, *messages: NewMessage) -> Sequenced:
        assigner = segment_assigner(self.shards, messages, self.book.read, self.book, repeat(0.5))
        first_tick = TimeTick(self.end.last_tick + 1)
        due = self.transactions.rollbacks_due(messages)
        count = sum(map(ticks_of, messages)) + due
        if assigner is not None:
            count += assigner.ticks_needed
            first_tick = assigner.begin(first_tick)
        known = WriterState(self.transactions, self.producers)
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
            (record, tick, self.book.meanings.get(stored))
            for record in self.records[first:]
            for tick, stored in _stored(record)
        ]


def _stored(record: Record) -> list[tuple[TimeTick, bytes]]:
    """Each message that has a header of its own; a batch has one for all."""
    if record.batch is not None:
        return [(record.base_tick, record.batch.properties)]
    return [(message.tick, message.body) for message in record.messages()]


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


def unsaid() -> Inserted:
    """The header of a batch whose producer wrote none."""
    return Inserted(CollectionId(0), PartitionId(0), SegmentId(0), 0, 0, None)


def deletes_unsaid() -> Deleted:
    """The same of a batch of deletes."""
    return Deleted(CollectionId(0), 0)


def begin(vchannel: str = V[0]) -> NewMessage:
    return NewMessage(vchannel, MessageType.BEGIN_TXN, b"begin", 5, txn=TxnContext(0, 0))  # type: ignore[arg-type]
