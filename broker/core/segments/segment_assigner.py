"""Assigns the rows of one group of messages to segments; says which segments to create and flush.

It changes the table as each message is placed, so that the next message sees the change. A refused
message changes nothing. A CreateSegment is placed right before the first rows of a new segment, and
a message that ends segments (such as a dropped partition) names them.

Why the Flush of a sealed segment waits for the next group: by then its rows are durable, and so is
the end of every transaction that holds it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.core.naming import is_control_channel
from broker.core.segments.batch_rows import rows_of_batch
from broker.core.segments.segment_sealing import GrowingSegment
from broker.core.segments.segment_table import NewSegment, SegmentTable
from broker.model.batch import NewBatch
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
from broker.model.message import MessageType, NewMessage, NewRun
from broker.value import value

FLUSHES_MAX = 1024
"""Flush messages in one group; the rest wait for the next group."""

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
_ROWS = (Inserted, Deleted)
_CHANGES_OF_ROWS = (CollectionCreated, PartitionCreated, PartitionDropped)

DecodedEffect = Effect | Refusal | None
"""The decoded effect, or the decoding error; None: no effect."""


class HeaderWriter(Protocol):
    """Writes decisions into stored messages: the writing half of `ports.Headers`."""

    def with_segment(self, stored: bytes, segment_id: SegmentId, size_bytes: int) -> bytes: ...

    def with_flushed(self, kind: int, stored: bytes, segment_ids: Sequence[SegmentId]) -> bytes: ...

    def with_rows(
        self, properties: bytes, rows: Inserted | Deleted, segment_id: SegmentId
    ) -> bytes: ...

    def own(self, vchannel: str, event: SegmentCreated | SegmentFlushed) -> bytes: ...


@dataclass(frozen=True, slots=True)
class InternalMessage:
    """A message that the log itself writes: a CreateSegment or a Flush."""

    vchannel: str
    kind: MessageType
    body: bytes


@value
class PlacedMessage:
    """A message in its stored form, and the CreateSegment that must come right before it.

    `body`: of a batch its shared properties, since those hold the header.
    """

    body: bytes
    before: InternalMessage | None = None


class SegmentAssigner:
    """Made for one group of messages, used once."""

    def __init__(
        self,
        table: SegmentTable,
        effects: Mapping[int, DecodedEffect],
        headers: HeaderWriter,
        chances: Iterator[float],
    ) -> None:
        """`effects`: of the messages that may affect the table, by their index in the group."""
        self.flushed: dict[int, tuple[SegmentId, ...]] = {}
        """The segments that each message flushed, by its index; complete once all are placed."""
        self.effects = effects
        """The messages that `refusal` and `place` are called for."""
        self._table, self._headers = table, headers
        self._chances = chances
        self._due = table.flushable()[:FLUSHES_MAX]
        # Each message with rows creates at most one segment.
        rows = _ROWS if table.limits.delete_segments else Inserted
        self._segments_max = sum([isinstance(it, rows) for it in effects.values()])
        self._tick = TimeTick(0)
        self._next_id = 0
        self._newest: tuple[int, DecodedEffect] = (-1, None)

    @property
    def records_due(self) -> int:
        """An upper bound of the records that this adds to the group."""
        return len(self._due) + self._segments_max

    @property
    def ticks_needed(self) -> int:
        """An upper bound of the ticks needed for these records and for ids of segments."""
        return self.records_due + self._segments_max

    def begin(self, first_tick: TimeTick) -> TimeTick:
        """Take the ticks from here on; returns the first one left for messages."""
        # Segment ids are ticks: the oracle makes them unique across owners, without another
        # counter.
        self._next_id = first_tick
        self._tick = TimeTick(first_tick + self._segments_max)
        return self._tick

    def flushes(self) -> list[InternalMessage]:
        """The Flush messages that are due; they go before all others of the group."""
        return [self._flush(segment) for segment in self._due]

    def refusal(self, index: int, message: NewMessage) -> Refusal | None:
        """Why this message of `effects` cannot be placed; changes nothing."""
        if message.type in ROW_TYPES:
            if not (self._table.required or self._table.is_ours(message.vchannel)):
                return None
            effect = self._rows(index, message)
            return effect if isinstance(effect, Refusal) else self._rows_refusal(message, effect)
        effect = self.effects[index]
        return effect if isinstance(effect, Refusal) else None

    def ends(self, index: int, message: NewMessage) -> frozenset[TxnId] | None:
        """The transactions that an exclusive message ends; None: all in its scope."""
        effect = self.effects.get(index)
        if not isinstance(effect, _CHANGES_OF_ROWS) or not effect.of_rows:
            return None
        known = self._table.collections.get(message.vchannel)
        if isinstance(effect, CollectionCreated):
            return frozenset()
        if known is None or known.id != effect.collection_id:
            return None
        if isinstance(effect, PartitionCreated):
            return frozenset()
        return self._table.holders(message.vchannel, effect.partition_id)

    def place(self, index: int, message: NewMessage, txn_id: TxnId | None) -> PlacedMessage:
        """Place a message of `effects`: update the table, return the form to store."""
        effect = self._rows(index, message)
        match effect:
            case None | Refusal():
                return PlacedMessage(_stored(message))
            case Inserted() | Deleted():
                # Where no collection is required, rows without one are stored as they are.
                if message.vchannel in self._table.collections:
                    return self._place_rows(message, effect, txn_id)
                return PlacedMessage(_stored(message))
            case _:
                ids = self._change(message.vchannel, effect)
                if ids is None:
                    return PlacedMessage(message.body)
                self.flushed[index] = ids
                return PlacedMessage(self._headers.with_flushed(message.type, message.body, ids))

    # ---- rows -------------------------------------------------------------------------------

    def _rows(self, index: int, message: NewMessage) -> DecodedEffect:
        """The effect of a message; that of a batch depends on the collection of its vchannel."""
        effect = self.effects[index]
        if not isinstance(message, NewBatch) or not isinstance(effect, _ROWS):
            return effect
        # Asked for the refusal and again for the placement, with nothing in between.
        if self._newest[0] == index:
            return self._newest[1]
        collection = self._table.collections.get(message.vchannel)
        if collection is not None:
            effect = rows_of_batch(message, effect, collection)
        self._newest = index, effect
        return effect

    def _rows_refusal(self, message: NewMessage, effect: Effect | None) -> Refusal | None:
        assert isinstance(effect, Inserted | Deleted), effect
        partition_id = effect.partition_id if isinstance(effect, Inserted) else ALL_PARTITIONS
        refusal = self._table.refusal(message.vchannel, effect.collection_id, partition_id)
        if refusal is not None or isinstance(effect, Deleted):
            return refusal
        return self._schema_refusal(message, effect) or self._size_refusal(message, effect)

    def _schema_refusal(self, message: NewMessage, effect: Inserted) -> Refusal | None:
        """A producer that sends no schema version predates them and is accepted."""
        version = self._table.collections[message.vchannel].schema_version
        if effect.schema_version in (None, version):
            return None
        return Refusal(
            StreamingCode.SCHEMA_VERSION_MISMATCH,
            f"rows have schema version {effect.schema_version}, but collection"
            f" {effect.collection_id} is at {version}; fetch the schema again",
        )

    def _size_refusal(self, message: NewMessage, effect: Inserted) -> Refusal | None:
        limits = self._table.limits
        size_bytes = effect.size_bytes or message.size
        if effect.rows > limits.insert_rows_max or size_bytes > limits.insert_bytes_max:
            return Refusal(
                StreamingCode.UNRECOVERABLE,
                f"insert of {effect.rows} rows, {size_bytes} bytes exceeds a segment's limit of"
                f" {limits.insert_rows_max} rows, {limits.insert_bytes_max} bytes; split it",
            )
        return None

    def _place_rows(
        self, message: NewMessage, effect: Inserted | Deleted, txn_id: TxnId | None
    ) -> PlacedMessage:
        if isinstance(effect, Deleted):
            self._table.deleted_rows += effect.rows
            body = message.body
            if isinstance(message, NewBatch):
                body = self._headers.with_rows(message.part.properties, effect, SegmentId(0))
            if not self._table.limits.delete_segments:
                return PlacedMessage(body)
            rows, size_bytes = effect.rows, effect.size_bytes
            segment, created = self._room(message, ALL_PARTITIONS, rows, size_bytes)
            self._table.grow(segment, rows, size_bytes, self._tick, txn_id)
            return PlacedMessage(body, created)
        self._table.inserted_rows += effect.rows
        size_bytes = effect.size_bytes or message.size
        segment, created = self._room(message, effect.partition_id, effect.rows, size_bytes)
        self._table.grow(segment, effect.rows, size_bytes, self._tick, txn_id)
        if isinstance(message, NewBatch):
            body = self._headers.with_rows(message.part.properties, effect, segment.id)
        else:
            body = self._headers.with_segment(message.body, segment.id, size_bytes)
        return PlacedMessage(body, created)

    def _room(
        self, message: NewMessage, partition_id: PartitionId, rows: int, size_bytes: int
    ) -> tuple[GrowingSegment, InternalMessage | None]:
        found = self._table.room(message.vchannel, partition_id, rows, size_bytes)
        if found is not None:
            return found, None
        # `begin` has reserved an id for each message with rows.
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
            self._table.limits.storage_version,
        )
        return segment, self._own(message.vchannel, MessageType.CREATE_SEGMENT, created)

    # ---- collections ------------------------------------------------------------------------

    def _change(self, vchannel: str, effect: Effect) -> tuple[SegmentId, ...] | None:
        """Update the table; returns the flushed segments, None for messages that flush none.

        Creating what exists or dropping what does not changes nothing; the message is still stored.
        """
        # It names no collection, so it comes before the lookup.
        if isinstance(effect, AllFlushed):
            return self._table.flush()
        if isinstance(effect, CollectionCreated):
            self._table.create_collection(
                vchannel,
                effect.collection_id,
                effect.partition_ids,
                effect.schema_version,
                effect.default_partition_id,
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
                # A segment has the one schema version of its CreateSegment, so later rows need new
                # segments.
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


def placed_apart(
    table: SegmentTable, messages: Sequence[NewMessage]
) -> list[Sequence[NewMessage]] | None:
    """What to place of each message: of a run of rows of a collection every one, which keeps order.

    None when no message is such a run.
    """
    created: set[str] = set()
    parts: list[Sequence[NewMessage]] = []
    for message in messages:
        if message.type == MessageType.CREATE_COLLECTION:
            created.add(message.vchannel)
        if isinstance(message, NewRun) and _concerns(table, message, created):
            parts.append(message.messages())
        else:
            parts.append((message,))
    whole = all(part[0] is message for part, message in zip(parts, messages, strict=True))
    return None if whole else parts


def segment_assigner(
    table: SegmentTable,
    messages: Sequence[NewMessage],
    read: Callable[[NewMessage], DecodedEffect],
    headers: HeaderWriter,
    chances: Iterator[float],
) -> SegmentAssigner | None:
    """The assigner for these messages; None if none of them can affect the table."""
    created: set[str] = set()
    effects: dict[int, DecodedEffect] = {}
    for index, message in enumerate(messages):
        if message.type == MessageType.CREATE_COLLECTION:
            # A collection may be created and filled in the same group.
            created.add(message.vchannel)
        if _concerns(table, message, created):
            effects[index] = read(message)
    # Sealed segments may be due for their Flush, whatever the messages are.
    return SegmentAssigner(table, effects, headers, chances) if effects or table.sealed else None


def _stored(message: NewMessage) -> bytes:
    """The part of its stored form that holds its header."""
    return message.part.properties if isinstance(message, NewBatch) else message.body


def _concerns(table: SegmentTable, message: NewMessage, created: set[str]) -> bool:
    """Whether its header must be read. `created`: vchannels whose creation came before it."""
    kind, vchannel = message.type, message.vchannel
    if kind in ROW_TYPES:
        return table.required or table.is_ours(vchannel) or vchannel in created
    if kind == MessageType.FLUSH_ALL:
        return True
    if kind not in DDL_TYPES or not (vchannel in created or table.is_ours(vchannel)):
        return False
    # Copies on the control channel inform watchers of all collections; they change no segment here.
    return not is_control_channel(vchannel)
