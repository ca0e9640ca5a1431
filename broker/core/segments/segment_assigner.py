"""One group of messages on its way through the shard state: who is refused, and what is written.

It owns what the group does to collections and segments: which segment an insert goes to, the
CreateSegment right before the first one, what an exclusive message flushes, and the Flush of what
was sealed before. It changes the state as each message is placed, so that the next one sees it; a
message that is refused changes nothing.

Why a Flush waits for the next group: whatever sealed the segment, its rows are durable by then, and
so is the end of every transaction that held it.
Next: broker/core/log/sequencer.py
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.core.naming import is_control_channel
from broker.core.segments.segment_sealing import GrowingSegment
from broker.core.segments.segment_table import NewSegment, SegmentTable
from broker.model.effect import (
    ALL_PARTITIONS,
    AllFlushed,
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
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import PartitionId, SegmentId, TimeTick, TxnId
from broker.model.message import MessageType, NewMessage

FLUSHES_MAX = 1024
"""In one group; the others wait for the next one."""

DDL_TYPES = frozenset(
    {
        MessageType.CREATE_COLLECTION,
        MessageType.DROP_COLLECTION,
        MessageType.CREATE_PARTITION,
        MessageType.DROP_PARTITION,
        MessageType.MANUAL_FLUSH,
        MessageType.SCHEMA_CHANGE,
        MessageType.ALTER_COLLECTION,
        MessageType.FLUSH_ALL,
        MessageType.TRUNCATE_COLLECTION,
    }
)
ROW_TYPES = frozenset({MessageType.INSERT, MessageType.DELETE})
_OPENS = frozenset({MessageType.CREATE_COLLECTION})

DecodedEffect = Effect | Refusal | None
"""What a message means, or why nobody can tell."""


class HeaderWriter(Protocol):
    """How what is decided here gets into stored messages: the writing half of `ports.Headers`."""

    def with_segment(self, stored: bytes, segment_id: SegmentId, size_bytes: int) -> bytes: ...

    def with_flushed(self, kind: int, stored: bytes, segment_ids: Sequence[SegmentId]) -> bytes: ...

    def own(self, vchannel: str, event: SegmentCreated | SegmentFlushed) -> bytes: ...


@dataclass(frozen=True, slots=True)
class InternalMessage:
    """A message that the log writes on its own account."""

    vchannel: str
    kind: MessageType
    body: bytes


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """A message as it is stored, and what must lie before it and behind all that came earlier."""

    body: bytes
    before: InternalMessage | None = None


class SegmentAssigner:
    """See the module. One for each group, used once."""

    def __init__(
        self,
        table: SegmentTable,
        effects: Mapping[int, DecodedEffect],
        headers: HeaderWriter,
        chances: Iterator[float],
    ) -> None:
        """`effects`: of the messages that may concern the shard state, by their index."""
        self.flushed: dict[int, tuple[SegmentId, ...]] = {}
        """What each message that flushes did flush, by its index; complete once all are placed."""
        self.effects = effects
        """Of the messages that concern the state; the others need not be asked about."""
        self._table, self._headers = table, headers
        self._chances = chances
        self._due = table.flushable()[:FLUSHES_MAX]
        self._segments_max = sum(isinstance(it, Inserted | Deleted) for it in effects.values())
        self._tick = TimeTick(0)
        self._next_id = 0

    @property
    def records_due(self) -> int:
        """At most so many records of our own go with the group."""
        return len(self._due) + self._segments_max

    @property
    def ticks_needed(self) -> int:
        """At most so many ticks are needed, for these records and for ids of segments."""
        return self.records_due + self._segments_max

    def begin(self, first_tick: TimeTick) -> TimeTick:
        """The ticks from here on are ours; gives the first one that messages may get."""
        self._next_id = first_tick
        self._tick = TimeTick(first_tick + self._segments_max)
        return self._tick

    def flushes(self) -> list[InternalMessage]:
        """The Flush messages that are due; they come before everything else."""
        return [self._flush(segment) for segment in self._due]

    def refusal(self, index: int, message: NewMessage) -> Refusal | None:
        """Why this message of `effects` cannot be placed now. Changes nothing."""
        effect = self.effects[index]
        if message.type in ROW_TYPES:
            if not (self._table.required or self._table.is_ours(message.vchannel)):
                return None
            return effect if isinstance(effect, Refusal) else self._rows_refusal(message, effect)
        return effect if isinstance(effect, Refusal) else None

    def place(self, index: int, message: NewMessage, txn_id: TxnId | None) -> PlacedMessage:
        """A message of `effects` is placed now: the form in which it is stored."""
        effect = self.effects[index]
        match effect:
            case None | Refusal():
                return PlacedMessage(message.body)
            case Inserted() | Deleted():
                if message.vchannel in self._table.collections:
                    return self._place_rows(message, effect, txn_id)
                return PlacedMessage(message.body)
            case _:
                ids = self._change(message.vchannel, effect)
                if ids is None:
                    return PlacedMessage(message.body)
                self.flushed[index] = ids
                return PlacedMessage(self._headers.with_flushed(message.type, message.body, ids))

    # ---- rows -------------------------------------------------------------------------------

    def _rows_refusal(self, message: NewMessage, effect: Effect | None) -> Refusal | None:
        assert isinstance(effect, Inserted | Deleted), effect
        partition_id = effect.partition_id if isinstance(effect, Inserted) else ALL_PARTITIONS
        refusal = self._table.refusal(message.vchannel, effect.collection_id, partition_id)
        if refusal is not None or isinstance(effect, Deleted):
            return refusal
        return self._schema_refusal(message, effect) or self._size_refusal(message, effect)

    def _schema_refusal(self, message: NewMessage, effect: Inserted) -> Refusal | None:
        """One that does not say its version comes from a producer that knows of none."""
        version = self._table.collections[message.vchannel].schema_version
        if effect.schema_version in (None, version):
            return None
        return Refusal(
            StreamingCode.SCHEMA_VERSION_MISMATCH,
            f"the rows have schema version {effect.schema_version}, collection"
            f" {effect.collection_id} is at {version}; read the schema again",
        )

    def _size_refusal(self, message: NewMessage, effect: Inserted) -> Refusal | None:
        limits = self._table.limits
        size_bytes = effect.size_bytes or message.size
        if effect.rows > limits.insert_rows_max or size_bytes > limits.insert_bytes_max:
            return Refusal(
                StreamingCode.UNRECOVERABLE,
                f"{effect.rows} rows of {size_bytes} bytes do not fit into a segment, which takes"
                f" {limits.insert_rows_max} rows and {limits.insert_bytes_max} bytes; split them",
            )
        return None

    def _place_rows(
        self, message: NewMessage, effect: Inserted | Deleted, txn_id: TxnId | None
    ) -> PlacedMessage:
        if isinstance(effect, Deleted):
            segment, created = self._room(message, ALL_PARTITIONS, effect.rows, message.size)
            self._table.grow(segment, effect.rows, message.size, self._tick, txn_id)
            return PlacedMessage(message.body, created)
        size_bytes = effect.size_bytes or message.size
        segment, created = self._room(message, effect.partition_id, effect.rows, size_bytes)
        self._table.grow(segment, effect.rows, size_bytes, self._tick, txn_id)
        body = self._headers.with_segment(message.body, segment.id, size_bytes)
        return PlacedMessage(body, created)

    def _room(
        self, message: NewMessage, partition_id: PartitionId, rows: int, size_bytes: int
    ) -> tuple[GrowingSegment, InternalMessage | None]:
        found = self._table.room(message.vchannel, partition_id, rows, size_bytes)
        if found is not None:
            return found, None
        assert self._next_id < self._tick, "more segments than rows"
        new = NewSegment(SegmentId(self._next_id), self._tick, next(self._chances))
        self._next_id += 1
        first = (rows, size_bytes)
        segment = self._table.create_segment(message.vchannel, partition_id, new, first)
        created = SegmentCreated(
            segment.collection_id,
            partition_id,
            segment.id,
            segment.bytes_max,
            segment.rows_max,
            segment.level,
            self._table.collections[message.vchannel].schema_version,
        )
        return segment, self._own(message.vchannel, MessageType.CREATE_SEGMENT, created)

    # ---- collections ------------------------------------------------------------------------

    def _change(self, vchannel: str, effect: Effect) -> tuple[SegmentId, ...] | None:
        """Gives what was flushed; None when the message flushes nothing by what it is.

        What is there already, or is not there, changes nothing: such a message is stored as well.
        """
        if isinstance(effect, AllFlushed):
            return self._table.flush()
        if isinstance(effect, CollectionCreated):
            self._table.create_collection(
                vchannel, effect.collection_id, effect.partition_ids, effect.schema_version
            )
            return None
        collection = self._table.collections.get(vchannel)
        assert not isinstance(effect, Inserted | Deleted | SegmentCreated | SegmentFlushed)
        if collection is None or collection.id != effect.collection_id:
            return None
        match effect:
            case CollectionDropped():
                return self._table.drop_collection(vchannel)
            case PartitionDropped(_, partition_id):
                return self._table.drop_partition(vchannel, partition_id)
            case PartitionCreated(_, partition_id):
                collection.partition_ids.add(partition_id)
                return None
            case SchemaChanged():
                collection.schema_version = effect.schema_version
                return self._table.flush(vchannel)
            case Truncated() | ManuallyFlushed():
                return self._table.flush(vchannel)
            case _:
                return None

    # ---- messages of our own ----------------------------------------------------------------

    def _flush(self, segment: GrowingSegment) -> InternalMessage:
        self._table.flushed(segment)
        event = SegmentFlushed(segment.collection_id, segment.partition_id, segment.id)
        return self._own(segment.vchannel, MessageType.FLUSH, event)

    def _own(
        self, vchannel: str, kind: MessageType, event: SegmentCreated | SegmentFlushed
    ) -> InternalMessage:
        return InternalMessage(vchannel, kind, self._headers.own(vchannel, event))


def segment_assigner(
    table: SegmentTable,
    messages: Sequence[NewMessage],
    read: Callable[[NewMessage], DecodedEffect],
    headers: HeaderWriter,
    chances: Iterator[float],
) -> SegmentAssigner | None:
    """The turn of these messages; None when they, and the state, are no concern of each other.

    Costs next to nothing on a pchannel without collections.
    """
    kinds = {message.type for message in messages}
    if table.idle and _OPENS.isdisjoint(kinds):
        return None
    known = {it.vchannel for it in messages if it.type == MessageType.CREATE_COLLECTION}
    known |= {vchannel for vchannel in {it.vchannel for it in messages} if table.is_ours(vchannel)}
    by_type = table.required or not kinds <= ROW_TYPES
    if not (known or by_type or table.sealed):
        return None
    effects = {
        index: read(message)
        for index, message in enumerate(messages)
        if _concerns(table, message, known)
    }
    return SegmentAssigner(table, effects, headers, chances)


def _concerns(table: SegmentTable, message: NewMessage, known: set[str]) -> bool:
    """Whether its header must be read."""
    ours = message.vchannel in known
    if message.type in ROW_TYPES:
        return ours or table.required
    if message.type == MessageType.FLUSH_ALL:
        return True
    # The control channel's copies are for who watches all collections.
    return message.type in DDL_TYPES and ours and not is_control_channel(message.vchannel)
