"""The messages of a batch one by one, in the form that Milvus's consumers read.

Owns the making of that form, which nobody stored: payload, what all share, the key. Unpacks a
packed body once for each delivery that holds some of it. Next: schemas/splice.py
"""

from broker.model.batch import Codec
from broker.model.record import Record, Slice
from schemas.entries import write_entry
from schemas.packing import unpack
from schemas.properties import ROW_KEY
from schemas.scan import STORED_PAYLOAD, STORED_PROPERTY
from schemas.varint import varint
from schemas.wire import consume_message


def consume_slice(part: Slice) -> list[bytes]:
    """A ConsumeResponse for each message. Raises BadPacking, which an append was refused for."""
    record, batch = part.record, part.record.batch
    assert batch is not None
    payloads = payloads_of(record)
    keys = batch.keys.split(len(record.sizes))
    start = sum(record.sizes[: part.first])
    messages: list[bytes] = []
    for index in range(part.first, part.end):
        size = record.sizes[index]
        stored = [batch.properties]
        if size:
            stored = [STORED_PAYLOAD, varint(size), payloads[start : start + size], *stored]
        if (key := keys[index]) is not None:
            stored.append(write_entry(STORED_PROPERTY, ROW_KEY.key, ROW_KEY.encode(key)))
        start += size
        messages.append(
            consume_message(
                record.base_id + index,
                record.base_tick + index,
                record.last_confirmed_of(index),
                record.term,
                b"".join(stored),
            )
        )
    return messages


def payloads_of(record: Record) -> bytes:
    """The body of a batch, unpacked. Raises BadPacking."""
    assert record.batch is not None
    if record.batch.codec is Codec.NONE:
        return record.body
    return unpack(record.batch.codec, record.body, sum(record.sizes))
