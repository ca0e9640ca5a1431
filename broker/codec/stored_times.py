"""When groups get a message, as its properties say, and the copies of delayed messages."""

from dataclasses import replace
from functools import lru_cache

from broker.codec.stored_messages import stored_of
from broker.model.groups.delivery_times import DeliveryTimes, ReleasedMessage
from broker.model.record import RecordSlice
from schemas.encoding.entries import write_entry
from schemas.encoding.varint import Malformed
from schemas.properties.keys import (
    DELIVER_AT,
    DELIVER_ID,
    DELIVER_PREFIX,
    DELIVER_TTL,
    BadProperty,
)
from schemas.scan import STORED_PROPERTY, stored_properties

_REMEMBERED_BYTES_MAX = 512


def delivery_times(properties: bytes) -> DeliveryTimes | None:
    """See `Headers.delivery_times`. What cannot be read says nothing."""
    if DELIVER_PREFIX not in properties:
        return None
    # Most are those of a batch, which many batches share; bodies are not kept.
    short = len(properties) <= _REMEMBERED_BYTES_MAX
    return (_remembered if short else _read)(properties)


def released(part: RecordSlice) -> list[bytes]:
    """See `Headers.released`."""
    # The transaction of the messages is over, and their copies are in none.
    plain = RecordSlice(replace(part.record, txn=None), part.first, part.end)
    first_id = part.record.base_id + part.first
    return [stored + _of_id(first_id + at) for at, stored in enumerate(stored_of(plain))]


def released_message(stored: bytes) -> ReleasedMessage:
    """Which message `released` has made the copy of. Raises BadProperty, Malformed."""
    properties = stored_properties(stored)
    return ReleasedMessage(DELIVER_AT.need(properties), DELIVER_ID.need(properties))


def _of_id(id: int) -> bytes:
    return write_entry(STORED_PROPERTY, DELIVER_ID.key, DELIVER_ID.encode(id))


@lru_cache(maxsize=1024)
def _remembered(properties: bytes) -> DeliveryTimes | None:
    return _read(properties)


def _read(properties: bytes) -> DeliveryTimes | None:
    try:
        found = stored_properties(properties)
        times = DeliveryTimes(DELIVER_AT.read(found) or 0, DELIVER_TTL.read(found) or 0)
    except (BadProperty, Malformed):
        return None
    return times if times.at_ms or times.ttl_ms else None
