"""The keys of messages in their stored form, and batches without their compression."""

from dataclasses import replace
from typing import Final

from broker.codec.stored_messages import payloads_of
from broker.model.batch import Codec
from broker.model.message import Delivered
from broker.model.record import Record, RecordSlice
from schemas.encoding.varint import Malformed
from schemas.packing import BadPacking, unpack
from schemas.properties.keys import ROW_KEY, BadProperty
from schemas.scan import stored_properties
from schemas.stored import payload_of

_KEY: Final = ROW_KEY.key.encode()
"""A search in the bytes tells messages without a key apart without decoding them."""


def keys_of(item: RecordSlice | Delivered) -> list[bytes | None]:
    """The key of each message; None for none, and for one that cannot be read."""
    if not isinstance(item, RecordSlice):
        return [_key(item.body)]
    batch = item.record.batch
    if batch is None:
        return [_key(it) for it in payloads_of(item)]
    return batch.keys.split(len(item.record.sizes))[item.first : item.end]


def _key(stored: bytes) -> bytes | None:
    return None if _KEY not in stored else plain_key(stored)[0]


def plain_key(stored: bytes) -> tuple[bytes | None, bool]:
    """See `Headers.plain_key`."""
    try:
        return ROW_KEY.read(stored_properties(stored)), not payload_of(stored)
    except (BadProperty, Malformed):
        return None, False


def unpacked(record: Record) -> Record | None:
    """See `Headers.unpacked`."""
    batch = record.batch
    if batch is None or batch.codec is Codec.NONE:
        return record
    if batch.codec is Codec.ARROW:
        return None  # rows have no keys
    try:
        body = unpack(batch.codec, record.body, sum(record.sizes))
    except BadPacking:
        return None
    return replace(record, body=body, batch=replace(batch, codec=Codec.NONE))
