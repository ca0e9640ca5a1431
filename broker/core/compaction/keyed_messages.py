"""The keys of stored messages, as hashes, and which of the messages are tombstones."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from broker.model.message import BODY_TYPES
from broker.model.record import Record

HASH_BYTES: Final = 16
"""So long that two keys of one hash do not happen, whoever chooses them: one would be lost."""

PlainKey = Callable[[bytes], tuple[bytes | None, bool]]
"""Of a message in its stored form: the key, or None, and whether it has no payload."""


HashedKey = tuple[bytes | None, bool]
"""The hash of vchannel and key, None without key; and whether the message is a tombstone."""


def is_keyed(record: Record) -> bool:
    """Whether its messages may have keys: rows of programs, and none that the log itself writes."""
    return record.kind in BODY_TYPES


def hashes_of(record: Record, plain_key: PlainKey) -> Sequence[HashedKey]:
    """The key of each message."""
    batch = record.batch
    start = _start(record.vchannel)
    if batch is None:
        plain = [plain_key(it.body) for it in record.messages()]
        return [(None if key is None else _hash(start, key), empty) for key, empty in plain]
    keys = batch.keys.split(len(record.sizes))
    return [
        (None, False) if key is None else (_hash(start, key), size == 0)
        for key, size in zip(keys, record.sizes, strict=True)
    ]


def _hash(start: Any, key: bytes) -> bytes:
    made = start.copy()
    made.update(key)
    digest: bytes = made.digest()
    return digest


@lru_cache(1024)
def _start(vchannel: str) -> Any:
    # A name has no zero byte, so no name and key can be read as others.
    return blake2b(vchannel.encode() + b"\0", digest_size=HASH_BYTES)
