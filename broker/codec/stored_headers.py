"""The port `Headers` over Milvus's messages: reads effects and marks, writes segments.

It knows which field of which header says what; it decides nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from broker.codec.announced import are_rows, is_announced, read_said, said_beside
from broker.codec.letters import copies, letters_of
from broker.codec.stored_keys import keys_of, plain_key, unpacked
from broker.codec.stored_marks import batch_mark, broadcast_mark
from broker.codec.stored_messages import stored_of
from broker.codec.stored_stages import stage_of
from broker.codec.stored_times import delivery_times, released, released_message
from broker.model.batch import NewBatch
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
    SegmentLevel,
    Truncated,
)
from broker.model.groups.dead_letter import Letter
from broker.model.groups.delivery_times import DeliveryTimes, ReleasedMessage
from broker.model.ids import CollectionId, PartitionId, SegmentId
from broker.model.measured import SetMark
from broker.model.message import ANNOUNCED, ClosedTick, Delivered, MessageType
from broker.model.record import RecordSlice
from broker.model.stage import StageName
from broker.ports.headers import BadHeader
from schemas.encoding.base64_text import read_base64
from schemas.encoding.fields import few_fields
from schemas.encoding.id_list import read_ids, with_ids
from schemas.encoding.varint import Malformed
from schemas.generated.milvus.proto import data as data_messages
from schemas.generated.milvus.proto import messages
from schemas.properties.batch_header import insert_header, joined, split_header, with_deletes
from schemas.properties.insert_header import assigned, read_insert_header, with_rows
from schemas.properties.keys import BROADCAST, HEADER
from schemas.stored import (
    header_of,
    payload_of,
    size_of,
    stored_form,
    taken_apart,
    with_header,
)

_FLUSHED_FIELD: Final[Mapping[int, int]] = {
    MessageType.MANUAL_FLUSH: 3,
    MessageType.SCHEMA_CHANGE: 2,
    MessageType.ALTER_COLLECTION: 5,
    MessageType.TRUNCATE_COLLECTION: 3,
}
"""The field of each header that lists the flushed segments."""

_BROADCAST_KEY: Final = BROADCAST.key.encode()
"""A search for the key in the bytes tells most messages apart without decoding them."""

# Milvus writes CreateSegment and Flush in version 2 of its message format.
_OWN_VERSION: Final = 2
_NEW_SCHEMA: Final = 0x6A
_OLD_SCHEMA: Final = 0x42
"""The schema in a CreateCollectionRequest: as a message, or as the bytes of one."""
_REMEMBERED_MAX: Final = 64
_REMEMBERED_BYTES_MAX: Final = 16 * 1024
"""Of creations of collections: a larger one is decoded for each of its copies."""
_SCHEMA_OF_CHANGE: Final = 0x0A
_UPDATES: Final = 0x0A
_SCHEMA_OF_UPDATES: Final = 0x2A
_SCHEMA_VERSION: Final = 10
_UNSAID: Final = Inserted(CollectionId(0), PartitionId(0), SegmentId(0), 0, 0, None)
"""Of an insert without a header."""


class StoredHeaders:
    """See `broker.ports.headers.Headers`."""

    def effect(self, kind: int, stored: bytes) -> Effect | None:
        read = _READERS.get(kind)
        if read is None:
            return None
        try:
            return read(stored)
        except (Malformed, ValueError) as error:
            name = MessageType(kind).name
            raise BadHeader(f"the header of {name} cannot be decoded: {error}") from None

    def batch_effect(self, kind: int, properties: bytes) -> Inserted | Deleted:
        try:
            _, header = split_header(properties)
            if kind == MessageType.DELETE:
                return Deleted(CollectionId(_number(header, 1)), _number(header, 2))
            return _insert_of(header, "batch") if header else _UNSAID
        except (Malformed, ValueError) as error:
            name = MessageType(kind).name
            raise BadHeader(f"the header of a batch of {name} cannot be decoded: {error}") from None

    def stage(self, stored: bytes) -> StageName | None:
        try:
            return stage_of(stored)
        except ValueError as error:
            raise BadHeader(f"the stage of a BeginTxn cannot be decoded: {error}") from None

    def with_segment(self, stored: bytes, segment_id: SegmentId, size_bytes: int) -> bytes:
        return with_header(stored, assigned(header_of(stored), segment_id, size_bytes))

    def with_rows(
        self, properties: bytes, rows: Inserted | Deleted, segment_id: SegmentId
    ) -> bytes:
        others, header = split_header(properties)
        if isinstance(rows, Deleted):
            return joined(others, with_deletes(header, rows.collection_id, rows.rows))
        if header:
            header = with_rows(header, rows.rows, rows.size_bytes, segment_id)
        else:
            ids = rows.collection_id, rows.partition_id, segment_id
            header = insert_header(*ids, rows.rows, rows.size_bytes)
        return joined(others, header)

    def with_flushed(self, kind: int, stored: bytes, segment_ids: Sequence[SegmentId]) -> bytes:
        field = _FLUSHED_FIELD.get(kind)
        # Other types that flush have no list in their header.
        if field is None:
            return stored
        return with_header(stored, with_ids(header_of(stored), field, tuple(segment_ids)))

    def broadcast_marks(self, body: bytes, sizes: Sequence[int]) -> Sequence[tuple[int, SetMark]]:
        if _BROADCAST_KEY not in body:
            return ()
        marks = []
        start = 0
        for index, size in enumerate(sizes):
            message = body[start : start + size]
            start += size
            mark = broadcast_mark(message) if _BROADCAST_KEY in message else None
            if mark is not None:
                marks.append((index, mark))
        return marks

    def announced(self, stored: bytes) -> bool:
        try:
            return is_announced(stored)
        except ValueError:
            return False

    batch_mark = staticmethod(batch_mark)

    def delivery_times(self, properties: bytes) -> DeliveryTimes | None:
        return delivery_times(properties)

    plain_key = staticmethod(plain_key)
    unpacked = staticmethod(unpacked)

    def released(self, part: RecordSlice) -> list[bytes]:
        return released(part)

    def released_message(self, stored: bytes) -> ReleasedMessage:
        try:
            return released_message(stored)
        except ValueError as error:
            raise BadHeader(f"a released message cannot be decoded: {error}") from None

    def own(self, vchannel: str, event: SegmentCreated | SegmentFlushed) -> bytes:
        if isinstance(event, SegmentCreated):
            header = bytes(
                messages.CreateSegmentMessageHeader(
                    collection_id=event.collection_id,
                    partition_id=event.partition_id,
                    segment_id=event.segment_id,
                    storage_version=event.storage_version,
                    max_segment_size=event.size_bytes_max,
                    max_rows=event.rows_max,
                    level=data_messages.SegmentLevel(event.level),
                    schema_version=event.schema_version,
                )
            )
            return stored_form(MessageType.CREATE_SEGMENT, _OWN_VERSION, vchannel, header)
        header = bytes(
            messages.FlushMessageHeader(
                collection_id=event.collection_id,
                partition_id=event.partition_id,
                segment_id=event.segment_id,
            )
        )
        return stored_form(MessageType.FLUSH, _OWN_VERSION, vchannel, header)

    def letters(self, items: Iterable[Delivered | ClosedTick | RecordSlice]) -> Sequence[Letter]:
        return letters_of(items)

    stored = staticmethod(stored_of)
    keys = staticmethod(keys_of)

    def copies(
        self, vchannel: str, letters: Sequence[tuple[Letter, Mapping[str, str]]]
    ) -> NewBatch:
        return copies(vchannel, letters)


def _inserted(stored: bytes) -> Effect | None:
    return _insert_of(header_of(stored), "message")


def _insert_of(encoded: bytes, what: str) -> Inserted:
    header = read_insert_header(encoded)
    if len(header.partitions) != 1:
        raise BadHeader(
            f"an insert must name one partition, this one names {len(header.partitions)};"
            f" append one {what} for each partition"
        )
    (part,) = header.partitions
    return Inserted(
        CollectionId(header.collection_id),
        PartitionId(part.partition_id),
        SegmentId(part.segment_id),
        part.rows,
        part.size_bytes,
        header.schema_version,
    )


def _deleted(stored: bytes) -> Effect | None:
    header = header_of(stored)
    # From the stored form, so that a replay finds the size that was counted when it was written.
    size_bytes = size_of(stored)
    return Deleted(CollectionId(_number(header, 1)), _number(header, 2), size_bytes)


def _collection_created(stored: bytes) -> Effect | None:
    properties, payload = taken_apart(stored)
    text, said = properties.get(HEADER.key, ""), properties.get(ANNOUNCED)
    read = _created if len(payload) <= _REMEMBERED_BYTES_MAX else _created.__wrapped__
    return read(text, payload, said)


@lru_cache(maxsize=_REMEMBERED_MAX)
def _created(text: str, payload: bytes, said: str | None) -> CollectionCreated | None:
    """Remembered: each vchannel has a copy of its own, which is read when it is placed and later.

    What differs between the copies has no effect.
    """
    header = read_base64(text)
    # Without a collection ID there is nothing that segments could belong to.
    if not _number(header, 1):
        return None
    # Older clients send the schema as bytes, newer ones as a message; the encoding is the same.
    schema = _part(payload, _NEW_SCHEMA) or _part(payload, _OLD_SCHEMA)
    partition_ids = tuple([PartitionId(each) for each in read_ids(header, 2)])
    version = _number(schema, _SCHEMA_VERSION)
    collection_id = CollectionId(_number(header, 1))
    of_rows = said is not None and are_rows(read_said(said))
    return CollectionCreated(collection_id, partition_ids, schema, version, of_rows)


def _schema_changed(stored: bytes) -> Effect | None:
    schema = _part(payload_of(stored), _SCHEMA_OF_CHANGE)
    return _changed(header_of(stored), 1, schema, MessageType.SCHEMA_CHANGE)


def _collection_altered(stored: bytes) -> Effect | None:
    header = header_of(stored)
    schema = _part(_part(payload_of(stored), _UPDATES), _SCHEMA_OF_UPDATES)
    if not schema:
        return CollectionAltered(CollectionId(_number(header, 2)))
    return _changed(header, 2, schema, MessageType.ALTER_COLLECTION)


def _changed(header: bytes, id_field: int, schema: bytes, kind: MessageType) -> SchemaChanged:
    return SchemaChanged(
        CollectionId(_number(header, id_field)),
        schema,
        _number(schema, _SCHEMA_VERSION),
        _flushed(header, kind),
    )


def _manually_flushed(stored: bytes) -> Effect | None:
    header = header_of(stored)
    flushed = _flushed(header, MessageType.MANUAL_FLUSH)
    return ManuallyFlushed(CollectionId(_number(header, 1)), flushed)


def _truncated(stored: bytes) -> Effect | None:
    header = header_of(stored)
    flushed = _flushed(header, MessageType.TRUNCATE_COLLECTION)
    return Truncated(CollectionId(_number(header, 2)), flushed)


def _segment_created(stored: bytes) -> Effect | None:
    header = header_of(stored)
    return SegmentCreated(
        CollectionId(_number(header, 1)),
        PartitionId(_number(header, 2)),
        SegmentId(_number(header, 3)),
        _number(header, 5),
        _number(header, 6),
        SegmentLevel(_number(header, 7)),
        _number(header, 8),
        _number(header, 4),
    )


def _segment_flushed(stored: bytes) -> Effect | None:
    header = header_of(stored)
    return SegmentFlushed(
        CollectionId(_number(header, 1)),
        PartitionId(_number(header, 2)),
        SegmentId(_number(header, 3)),
    )


def _collection_dropped(stored: bytes) -> Effect | None:
    return CollectionDropped(CollectionId(_number(header_of(stored), 1)))


def _partition_created(stored: bytes) -> Effect | None:
    header = header_of(stored)
    ids = CollectionId(_number(header, 1)), PartitionId(_number(header, 2))
    return PartitionCreated(*ids, _of_rows(stored))


def _partition_dropped(stored: bytes) -> Effect | None:
    header = header_of(stored)
    ids = CollectionId(_number(header, 1)), PartitionId(_number(header, 2))
    return PartitionDropped(*ids, _of_rows(stored))


def _of_rows(stored: bytes) -> bool:
    said = said_beside(stored)
    return said is not None and are_rows(said)


def _all_flushed(_: bytes) -> Effect | None:
    return AllFlushed()


def _number(data: bytes, field: int) -> int:
    """The number in this field; 0 when it is missing."""
    found = read_ids(data, field)
    # In protobuf the last value of a field that is given twice holds.
    return found[-1] if found else 0


def _part(data: bytes, tag: int) -> bytes:
    """The message in this field, its parts joined as protobuf does; empty when it is missing."""
    found = few_fields(data, 0, len(data))
    return b"".join([data[first:stop] for each, first, stop in found if each == tag])


def _flushed(header: bytes, kind: MessageType) -> tuple[SegmentId, ...]:
    return tuple([SegmentId(each) for each in read_ids(header, _FLUSHED_FIELD[kind])])


_READERS: Final[Mapping[int, Callable[[bytes], Effect | None]]] = {
    MessageType.INSERT: _inserted,
    MessageType.DELETE: _deleted,
    MessageType.FLUSH: _segment_flushed,
    MessageType.CREATE_COLLECTION: _collection_created,
    MessageType.DROP_COLLECTION: _collection_dropped,
    MessageType.CREATE_PARTITION: _partition_created,
    MessageType.DROP_PARTITION: _partition_dropped,
    MessageType.MANUAL_FLUSH: _manually_flushed,
    MessageType.CREATE_SEGMENT: _segment_created,
    MessageType.SCHEMA_CHANGE: _schema_changed,
    MessageType.ALTER_COLLECTION: _collection_altered,
    MessageType.FLUSH_ALL: _all_flushed,
    MessageType.TRUNCATE_COLLECTION: _truncated,
}
