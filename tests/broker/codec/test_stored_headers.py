"""Effects out of Milvus's messages, and segments into them."""

import pytest
from betterproto2 import Message

from broker.codec.stored_headers import StoredHeaders
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
from broker.model.ids import CollectionId, PartitionId, SegmentId
from broker.model.measured import SetMark
from broker.model.message import ANNOUNCED, MessageType
from broker.ports.headers import BadHeader, Headers
from schemas.batches import shared_properties
from schemas.encoding.base64_text import base64_text
from schemas.encoding.fields import FEW_MAX
from schemas.generated.milvus.proto import common, messages, msg, schema
from schemas.properties.batch_mark import write_batch_mark
from schemas.properties.broadcast_header import BroadcastHeader, write_broadcast_header
from schemas.properties.keys import BATCH
from schemas.stored import header_of

COLLECTION, PARTITION, SEGMENT = CollectionId(7), PartitionId(8), SegmentId(9)
SCHEMA = schema.CollectionSchema(name="rows", version=3)
HEADERS: Headers = StoredHeaders()


def _stored(header: bytes, payload: bytes = b"", **properties: str) -> bytes:
    return bytes(
        common.ImmutableMessage(
            payload=payload, properties={"_h": base64_text(header), "_vc": "p_0_7v0"} | properties
        )
    )


def _insert(*partitions: messages.PartitionSegmentAssignment) -> bytes:
    header = messages.InsertMessageHeader(
        collection_id=7, partitions=list(partitions), schema_version=2
    )
    return _stored(bytes(header), b"rows", mine="kept")


ROWS = messages.PartitionSegmentAssignment(partition_id=8, rows=3, binary_size=40)

MEANINGS: list[tuple[MessageType, bytes, Effect | None]] = [
    (
        MessageType.CREATE_COLLECTION,
        _stored(
            bytes(messages.CreateCollectionMessageHeader(collection_id=7, partition_ids=[8, 10])),
            bytes(msg.CreateCollectionRequest(collection_schema=SCHEMA)),
        ),
        CollectionCreated(COLLECTION, (PARTITION, PartitionId(10)), bytes(SCHEMA), 3),
    ),
    (
        MessageType.CREATE_COLLECTION,
        _stored(
            bytes(messages.CreateCollectionMessageHeader(collection_id=7, partition_ids=[8])),
            b"\x42" + bytes([len(bytes(SCHEMA))]) + bytes(SCHEMA),  # as older writers send it
        ),
        CollectionCreated(COLLECTION, (PARTITION,), bytes(SCHEMA), 3),
    ),
    (MessageType.CREATE_COLLECTION, _stored(b""), None),
    (
        MessageType.DROP_COLLECTION,
        _stored(bytes(messages.DropCollectionMessageHeader(collection_id=7))),
        CollectionDropped(COLLECTION),
    ),
    (
        MessageType.CREATE_PARTITION,
        _stored(bytes(messages.CreatePartitionMessageHeader(collection_id=7, partition_id=8))),
        PartitionCreated(COLLECTION, PARTITION),
    ),
    (
        MessageType.DROP_PARTITION,
        _stored(bytes(messages.DropPartitionMessageHeader(collection_id=7, partition_id=8))),
        PartitionDropped(COLLECTION, PARTITION),
    ),
    (
        MessageType.SCHEMA_CHANGE,
        _stored(
            bytes(messages.SchemaChangeMessageHeader(collection_id=7, flushed_segment_ids=[9])),
            bytes(messages.SchemaChangeMessageBody(schema=SCHEMA)),
        ),
        SchemaChanged(COLLECTION, bytes(SCHEMA), 3, (SEGMENT,)),
    ),
    (
        MessageType.ALTER_COLLECTION,
        _stored(
            bytes(messages.AlterCollectionMessageHeader(collection_id=7, flushed_segment_ids=[9])),
            bytes(
                messages.AlterCollectionMessageBody(
                    updates=messages.AlterCollectionMessageUpdates(schema=SCHEMA)
                )
            ),
        ),
        SchemaChanged(COLLECTION, bytes(SCHEMA), 3, (SEGMENT,)),
    ),
    (
        MessageType.ALTER_COLLECTION,
        _stored(
            bytes(messages.AlterCollectionMessageHeader(collection_id=7)),
            bytes(
                messages.AlterCollectionMessageBody(
                    updates=messages.AlterCollectionMessageUpdates(description="better")
                )
            ),
        ),
        CollectionAltered(COLLECTION),
    ),
    (
        MessageType.TRUNCATE_COLLECTION,
        _stored(bytes(messages.TruncateCollectionMessageHeader(collection_id=7, segment_ids=[9]))),
        Truncated(COLLECTION, (SEGMENT,)),
    ),
    (
        MessageType.MANUAL_FLUSH,
        _stored(bytes(messages.ManualFlushMessageHeader(collection_id=7, segment_ids=[9]))),
        ManuallyFlushed(COLLECTION, (SEGMENT,)),
    ),
    (MessageType.FLUSH_ALL, _stored(b""), AllFlushed()),
    (
        MessageType.INSERT,
        _insert(ROWS),
        Inserted(COLLECTION, PARTITION, SegmentId(0), 3, 40, 2),
    ),
    (
        MessageType.DELETE,
        _stored(bytes(messages.DeleteMessageHeader(collection_id=7, rows=5))),
        Deleted(COLLECTION, 5, 20),
    ),
    (MessageType.CREATE_DATABASE, _stored(b""), None),
]


@pytest.mark.parametrize(("kind", "stored", "meaning"), MEANINGS)
def test_a_message_means_what_its_header_says(
    kind: MessageType, stored: bytes, meaning: Effect | None
) -> None:
    assert HEADERS.effect(kind, stored) == meaning


def test_an_insert_gets_its_segment_and_keeps_the_rest() -> None:
    after = HEADERS.with_segment(_insert(ROWS), SEGMENT, 1000)
    assert HEADERS.effect(MessageType.INSERT, after) == Inserted(
        COLLECTION, PARTITION, SEGMENT, 3, 40, 2
    )
    parsed = common.ImmutableMessage.parse(after)
    assert parsed.payload == b"rows"
    assert {"mine": "kept", "_vc": "p_0_7v0"}.items() <= parsed.properties.items()


def test_an_insert_that_gives_no_size_gets_the_messages() -> None:
    sizeless = messages.PartitionSegmentAssignment(partition_id=8, rows=3)
    found = HEADERS.effect(
        MessageType.INSERT, HEADERS.with_segment(_insert(sizeless), SEGMENT, 1000)
    )
    assert isinstance(found, Inserted)
    assert found.size_bytes == 1000


@pytest.mark.parametrize("partitions", [(), (ROWS, ROWS)])
def test_an_insert_names_one_partition(
    partitions: tuple[messages.PartitionSegmentAssignment, ...],
) -> None:
    with pytest.raises(BadHeader, match=f"one partition, this one names {len(partitions)}"):
        HEADERS.effect(MessageType.INSERT, _insert(*partitions))


@pytest.mark.parametrize("schema_bytes", [10, 20_000])
def test_all_copies_of_a_creation_mean_the_same_and_others_something_else(
    schema_bytes: int,
) -> None:
    rows = {ANNOUNCED: '{"arrow":"","widths":[]}'}
    for id, said in ((7, rows), (8, rows), (7, {})):
        header = bytes(messages.CreateCollectionMessageHeader(collection_id=id, partition_ids=[8]))
        named = schema.CollectionSchema(name="x" * schema_bytes)
        body = bytes(msg.CreateCollectionRequest(collection_schema=named))
        wanted = CollectionCreated(
            CollectionId(id), (PartitionId(8),), bytes(named), 0, of_rows=bool(said)
        )
        for vchannel in ("p_0_7v0", "p_1_7v1"):
            stored = _stored(header, body, **said, _vc=vchannel)
            assert HEADERS.effect(MessageType.CREATE_COLLECTION, stored) == wanted


@pytest.mark.parametrize("said", ["[" * 20_000, "{", "[]"])
def test_what_only_the_master_says_is_refused_when_a_client_sends_nonsense(said: str) -> None:
    header = bytes(messages.CreateCollectionMessageHeader(collection_id=7, partition_ids=[8]))
    body = bytes(msg.CreateCollectionRequest(collection_schema=SCHEMA))
    stored = _stored(header, body, **{ANNOUNCED: said})
    with pytest.raises(BadHeader, match="CREATE_COLLECTION"):
        HEADERS.effect(MessageType.CREATE_COLLECTION, stored)


@pytest.mark.parametrize(
    ("kind", "header"),
    [
        (MessageType.SCHEMA_CHANGE, messages.SchemaChangeMessageHeader(collection_id=7)),
        (MessageType.ALTER_COLLECTION, messages.AlterCollectionMessageHeader(collection_id=7)),
        (MessageType.CREATE_COLLECTION, messages.CreateCollectionMessageHeader(collection_id=7)),
    ],
)
def test_a_payload_of_very_many_fields_is_refused(kind: MessageType, header: Message) -> None:
    with pytest.raises(BadHeader, match=f"{kind.name} cannot be decoded: more than {FEW_MAX}"):
        HEADERS.effect(kind, _stored(bytes(header), b"\x78\x01" * (FEW_MAX + 1)))


@pytest.mark.parametrize("kind", [kind for kind in MessageType if kind != MessageType.FLUSH_ALL])
def test_a_header_that_cannot_be_read_is_told(kind: MessageType) -> None:
    stored = _stored(b"\x08")
    meaningful = {each for each, _, effect in MEANINGS if effect is not None}
    if kind in meaningful | {MessageType.CREATE_SEGMENT, MessageType.FLUSH}:
        with pytest.raises(BadHeader, match=kind.name):
            HEADERS.effect(kind, stored)
    else:
        assert HEADERS.effect(kind, stored) is None


@pytest.mark.parametrize(
    "kind",
    [
        MessageType.MANUAL_FLUSH,
        MessageType.SCHEMA_CHANGE,
        MessageType.ALTER_COLLECTION,
        MessageType.TRUNCATE_COLLECTION,
    ],
)
def test_what_flushes_names_what_it_flushed(kind: MessageType) -> None:
    flushed = (SegmentId(3), SegmentId(1 << 60))
    before = next(stored for each, stored, _ in MEANINGS if each == kind)
    found = HEADERS.effect(kind, HEADERS.with_flushed(kind, before, flushed))
    assert isinstance(found, ManuallyFlushed | SchemaChanged | Truncated)
    assert found.segment_ids == flushed


def test_what_has_no_place_for_segments_stays_as_it_is() -> None:
    stored = _stored(bytes(messages.DropCollectionMessageHeader(collection_id=7)))
    assert HEADERS.with_flushed(MessageType.DROP_COLLECTION, stored, [SEGMENT]) == stored


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (
            MessageType.CREATE_SEGMENT,
            SegmentCreated(COLLECTION, PARTITION, SEGMENT, 1 << 27, 0, SegmentLevel.ROWS, 3),
        ),
        (MessageType.FLUSH, SegmentFlushed(COLLECTION, PARTITION, SEGMENT)),
    ],
)
def test_the_logs_own_messages_say_what_happened(
    kind: MessageType, event: SegmentCreated | SegmentFlushed
) -> None:
    stored = HEADERS.own("p_0_7v0", event)
    assert HEADERS.effect(kind, stored) == event
    properties = common.ImmutableMessage.parse(stored).properties
    assert (properties["_t"], properties["_v"], properties["_vc"]) == (str(kind), "2", "p_0_7v0")
    assert header_of(stored)


def _broadcast(broadcast_id: int, *vchannels: str) -> bytes:
    header = write_broadcast_header(BroadcastHeader(broadcast_id, vchannels))
    return _stored(b"", b"ddl", _bh=header)


def test_the_copies_of_broadcasts_in_a_record_are_found_by_their_place() -> None:
    bodies = [
        _stored(b"", b"rows"),
        _broadcast(7, "p_0_7v0", "p_1_7v1"),
        _stored(b"", b"a payload that names _bh"),
        _stored(b"", _bh="!"),
        _broadcast(0, "p_0_7v0"),
        _broadcast(8, "p_0_7v0"),
    ]
    sizes = [len(body) for body in bodies]
    assert HEADERS.broadcast_marks(b"".join(bodies), sizes) == [
        (1, SetMark(7, 2, {"p_0_7v0": 1, "p_1_7v1": 1})),
        (5, SetMark(8, 1, {"p_0_7v0": 1})),
    ]
    assert not HEADERS.broadcast_marks(bodies[0], sizes[:1])


def test_a_commit_says_which_batch_it_is_of() -> None:
    mark = write_batch_mark("app", 3, ["p_0_7v0", "p_0_7v0", "p_1_7v1"])
    found = HEADERS.batch_mark(_stored(b"", b"", **{BATCH.key: mark}))
    assert found is not None
    assert (found.total, found.counts) == (3, {"p_0_7v0": 2, "p_1_7v1": 1})
    assert HEADERS.batch_mark(_stored(b"", b"a commit of its own")) is None
    assert HEADERS.batch_mark(_stored(b"", b"", **{BATCH.key: "nonsense"})) is None


GOLDEN_BATCH = (
    b"\x1a\x07\n\x02_t\x12\x012"
    b"\x1a\x07\n\x02_v\x12\x011"
    b"\x1a\x0e\n\x03_vc\x12\x07p_0_7v0"
    b"\x1a\x1a\n\x02_h\x12\x14CAcSCggIEAMYKCICCAk="
)
"""An insert of 3 rows and 40 bytes into collection 7, partition 8, segment 9."""


def _properties(header: bytes = b"") -> bytes:
    """What the edge makes for a batch, whose header may be empty."""
    values = {"_t": "2", "_v": "1", "_h": base64_text(header), "_vc": "p_0_7v0"}
    return shared_properties(values.items())


def test_a_batch_without_a_header_says_nothing_and_gets_one() -> None:
    said = HEADERS.batch_effect(MessageType.INSERT, _properties())
    assert said == Inserted(CollectionId(0), PartitionId(0), SegmentId(0), 0, 0, None)
    rows = Inserted(COLLECTION, PARTITION, SEGMENT, 3, 40, None)
    stored = HEADERS.with_rows(_properties(), rows, SEGMENT)
    assert stored == GOLDEN_BATCH
    assert HEADERS.batch_effect(MessageType.INSERT, stored) == rows


def test_a_batch_with_a_header_keeps_what_else_it_says() -> None:
    header = messages.InsertMessageHeader(
        collection_id=7,
        partitions=[messages.PartitionSegmentAssignment(partition_id=8)],
        schema_version=2,
    )
    sent = _properties(bytes(header))
    said = HEADERS.batch_effect(MessageType.INSERT, sent)
    assert said == Inserted(COLLECTION, PARTITION, SegmentId(0), 0, 0, 2)
    rows = Inserted(COLLECTION, PARTITION, SEGMENT, 3, 40, 2)
    assert HEADERS.batch_effect(MessageType.INSERT, HEADERS.with_rows(sent, rows, SEGMENT)) == rows


def test_a_batch_of_deletes_has_a_header_of_its_own_type() -> None:
    said = HEADERS.batch_effect(MessageType.DELETE, _properties())
    assert said == Deleted(CollectionId(0), 0)
    stored = HEADERS.with_rows(_properties(), Deleted(COLLECTION, 3, 40), SegmentId(0))
    assert messages.DeleteMessageHeader.parse(header_of(stored)) == messages.DeleteMessageHeader(
        collection_id=7, rows=3
    )
    assert HEADERS.batch_effect(MessageType.DELETE, stored) == Deleted(COLLECTION, 3)


@pytest.mark.parametrize(
    ("kind", "header", "why"),
    [
        (MessageType.INSERT, b"\x08\x07", "names 0; append one batch for each partition"),
        (
            MessageType.INSERT,
            bytes(messages.InsertMessageHeader(collection_id=7, partitions=[ROWS, ROWS])),
            "names 2; append one batch for each partition",
        ),
        (MessageType.INSERT, b"\x08", "a batch of INSERT cannot be decoded"),
        (MessageType.DELETE, b"\x08", "a batch of DELETE cannot be decoded"),
    ],
)
def test_a_batch_whose_header_cannot_be_used_says_why(
    kind: MessageType, header: bytes, why: str
) -> None:
    with pytest.raises(BadHeader, match=why):
        HEADERS.batch_effect(kind, _properties(header))
