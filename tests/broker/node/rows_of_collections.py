"""Messages about collections as Milvus's client sends them, and what a log says of segments."""

from collections.abc import Sequence

from broker.codec.stored_headers import StoredHeaders
from broker.model.batch import NewBatch
from broker.model.effect import Effect
from broker.model.ids import CollectionId, MessageId, PartitionId
from broker.model.message import MessageType, NewMessage
from broker.model.txn import TxnContext
from schemas.encoding.base64_text import base64_text
from schemas.generated.milvus.proto import common, messages, msg, schema
from tests.broker.node.world import PCHANNEL, World

COLLECTION, A, B = CollectionId(7), PartitionId(1), PartitionId(2)
VCHANNEL = f"{PCHANNEL}_7v0"
HEADERS = StoredHeaders()


def stored(kind: int, header: bytes, payload: bytes = b"x", vchannel: str = VCHANNEL) -> bytes:
    properties = {"_t": str(kind), "_v": "1", "_h": base64_text(header), "_vc": vchannel}
    return bytes(common.ImmutableMessage(payload=payload, properties=properties))


def _message(
    kind: MessageType, header: bytes, payload: bytes = b"x", txn: TxnContext | None = None
) -> NewMessage:
    body = stored(kind, header, payload)
    return NewMessage(VCHANNEL, kind, body, len(payload), txn=txn)


def create_collection(version: int = 0) -> NewMessage:
    header = messages.CreateCollectionMessageHeader(collection_id=COLLECTION, partition_ids=[A, B])
    request = msg.CreateCollectionRequest(
        collection_schema=schema.CollectionSchema(name="rows", version=version)
    )
    return _message(MessageType.CREATE_COLLECTION, bytes(header), bytes(request))


def drop_collection() -> NewMessage:
    header = messages.DropCollectionMessageHeader(collection_id=COLLECTION)
    return _message(MessageType.DROP_COLLECTION, bytes(header))


def insert(
    rows: int = 1,
    *,
    partitions: Sequence[int] = (A,),
    size_bytes: int = 0,
    txn: TxnContext | None = None,
) -> NewMessage:
    header = messages.InsertMessageHeader(
        collection_id=COLLECTION,
        partitions=[
            messages.PartitionSegmentAssignment(
                partition_id=partition, rows=rows, binary_size=size_bytes
            )
            for partition in partitions
        ],
    )
    return _message(MessageType.INSERT, bytes(header), txn=txn)


def batch(messages: int = 2, size_bytes: int = 9, txn: TxnContext | None = None) -> NewBatch:
    """A batch of programs, which know nothing of collections."""
    sizes = (1,) * messages
    return NewBatch(VCHANNEL, MessageType.INSERT, b"x" * messages, size_bytes, txn=txn, sizes=sizes)


def delete(rows: int = 1, payload: bytes = b"keys", txn: TxnContext | None = None) -> NewMessage:
    header = messages.DeleteMessageHeader(collection_id=COLLECTION, rows=rows)
    return _message(MessageType.DELETE, bytes(header), payload, txn)


def manual_flush() -> NewMessage:
    header = messages.ManualFlushMessageHeader(collection_id=COLLECTION, flush_ts=1)
    return _message(MessageType.MANUAL_FLUSH, bytes(header))


async def effects_in(world: World, from_id: int = 1) -> list[Effect]:
    """What the log of PCHANNEL says of collections and segments, in order."""
    opened = world.node.open_channels.find(PCHANNEL)
    assert opened is not None
    found: list[Effect] = []
    at = MessageId(from_id)
    while at < opened.log.bounds().next_id:
        for record in await opened.log.read(at, 1 << 20):
            if record.batch is not None:
                found.append(HEADERS.batch_effect(record.kind, record.batch.properties))
            for message in () if record.batch else record.messages():
                effect = HEADERS.effect(record.kind, message.body)
                if effect is not None:
                    found.append(effect)
            at = record.next_id
    return found
