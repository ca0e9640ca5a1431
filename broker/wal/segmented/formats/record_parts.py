"""The parts of a stored record that only some versions have: its transaction, and its batch.

Shared by records and thinned ones; `record_format.py` has the layout.
"""

import struct
from functools import lru_cache

from broker.model.batch import (
    NO_KEYS,
    NOTHING_OWN,
    BatchKeys,
    BatchPart,
    Codec,
    OwnProperties,
)
from broker.model.ids import MessageId, TxnId
from broker.model.producer_numbers import ProducerPart
from broker.model.record import Record
from broker.model.txn import TxnPart

VERSION = 1
VERSION_IN_TXN = 2
VERSION_BATCH = 3
VERSION_BATCH_IN_TXN = 4
VERSION_OWN = 5
VERSION_OWN_IN_TXN = 6
_TXN = struct.Struct("<QqqQ")
_BATCH = struct.Struct("<IIIIIq")
_OWN = struct.Struct("<I")
# The checksum of every later version must have the mark 0, and its version inside the covered bytes
# (as `LENGTH_MARKS`): a release that does not know the version can verify the checksum then, and
# refuses the log. Otherwise it takes the record for a torn tail, and cuts off durable messages.
MARKS = {
    VERSION: 0,
    VERSION_IN_TXN: 0x54784E32,
    VERSION_BATCH: 0x42617433,
    VERSION_BATCH_IN_TXN: 0x42547834,
    VERSION_OWN: 0,
    VERSION_OWN_IN_TXN: 0,
}
# XORed with the length of the vchannel. Under another version it is at least 16 MiB too large.
LENGTH_MARKS = {version: version << 24 if version >= VERSION_OWN else 0 for version in MARKS}
IN_TXN = (VERSION_IN_TXN, VERSION_BATCH_IN_TXN, VERSION_OWN_IN_TXN)
OF_BATCHES = (VERSION_BATCH, VERSION_BATCH_IN_TXN, VERSION_OWN, VERSION_OWN_IN_TXN)
_WITH_OWN = (VERSION_OWN, VERSION_OWN_IN_TXN)
_CODECS = frozenset(Codec)


class BadPart(ValueError):
    """A part that no writer of its version has made."""


def version_of(record: Record) -> int:
    """The version that stores this record."""
    if record.batch is None:
        return VERSION if record.txn is None else VERSION_IN_TXN
    if record.batch.own.sizes:
        return VERSION_OWN if record.txn is None else VERSION_OWN_IN_TXN
    return VERSION_BATCH if record.txn is None else VERSION_BATCH_IN_TXN


def _encode_batch(part: BatchPart) -> bytes:
    producer, sequence = b"", 0
    if part.producer is not None:
        producer, sequence = part.producer.producer.encode(), part.producer.sequence
    keys = part.keys
    lengths = len(part.properties), len(keys.sizes), len(keys.body), len(producer)
    head = _BATCH.pack(part.codec, *lengths, sequence)
    key_sizes = sizes_of(len(keys.sizes)).pack(*keys.sizes)
    own = part.own
    if not own.sizes:
        return b"".join((head, part.properties, producer, key_sizes, keys.body))
    own_sizes = sizes_of(len(own.sizes)).pack(*own.sizes)
    head += _OWN.pack(len(own.body))
    return b"".join((head, part.properties, producer, key_sizes, keys.body, own_sizes, own.body))


def encode_parts(record: Record) -> bytes:
    """What lies between sizes and body."""
    part = record.txn
    txn = b"" if part is None else _TXN.pack(part.id, part.keepalive_ms, part.begin_id, part.bodies)
    return txn if record.batch is None else txn + _encode_batch(record.batch)


def part_at(buffer: bytes, at: int) -> TxnPart:
    """The transaction of a record whose parts begin at `at`."""
    txn_id, keepalive_ms, begin_id, bodies = _TXN.unpack_from(buffer, at)
    return TxnPart(TxnId(txn_id), keepalive_ms, MessageId(begin_id), bodies)


def batch_at(buffer: bytes, at: int, version: int, count: int) -> BatchPart:
    """The batch of a record of `count` messages, whose parts begin at `at`. Raises BadPart."""
    at += _BATCH_FROM[version]
    codec, properties, keys, key_bytes, producer, sequence = _BATCH.unpack_from(buffer, at)
    if codec not in _CODECS:
        raise BadPart(f"codec {codec} is unknown in version {version}")
    properties_at = at + _BATCH.size + (_OWN.size if version in _WITH_OWN else 0)
    producer_at = properties_at + properties
    keys_at = producer_at + producer
    body_at = keys_at + 4 * keys
    numbered = ProducerPart(buffer[producer_at:keys_at].decode(), sequence) if producer else None
    sizes = sizes_of(keys).unpack_from(buffer, keys_at)
    own = NOTHING_OWN
    if version in _WITH_OWN:
        (own_bytes,) = _OWN.unpack_from(buffer, at + _BATCH.size)
        own_at = body_at + key_bytes
        own_sizes = sizes_of(count).unpack_from(buffer, own_at)
        own_at += 4 * count
        own = OwnProperties(own_sizes, buffer[own_at : own_at + own_bytes])
    return BatchPart(
        buffer[properties_at:producer_at],
        Codec(codec),
        BatchKeys(sizes, buffer[body_at : body_at + key_bytes]) if keys else NO_KEYS,
        numbered,
        own,
    )


_BATCH_FROM = {
    VERSION_BATCH: 0,
    VERSION_BATCH_IN_TXN: _TXN.size,
    VERSION_OWN: 0,
    VERSION_OWN_IN_TXN: _TXN.size,
}
LEAST_BYTES = {
    VERSION: 0,
    VERSION_IN_TXN: _TXN.size,
    VERSION_BATCH: _BATCH.size,
    VERSION_BATCH_IN_TXN: _TXN.size + _BATCH.size,
    VERSION_OWN: _BATCH.size + _OWN.size,
    VERSION_OWN_IN_TXN: _TXN.size + _BATCH.size + _OWN.size,
}


def part_bytes(version: int, count: int, buffer: bytes, at: int) -> int:
    """The bytes between sizes and body, computed from lengths that are not verified yet."""
    if version not in OF_BATCHES:
        return LEAST_BYTES[version]
    start = at + _BATCH_FROM[version]
    _, properties, keys, key_bytes, producer, _ = _BATCH.unpack_from(buffer, start)
    size = LEAST_BYTES[version] + int(properties + 4 * keys + key_bytes + producer)
    if version in _WITH_OWN:
        (own_bytes,) = _OWN.unpack_from(buffer, start + _BATCH.size)
        size += int(own_bytes) + 4 * count
    return size


@lru_cache(1024)
def sizes_of(count: int) -> struct.Struct:
    """So many numbers of 32 bits."""
    return struct.Struct(f"<{count}I")
