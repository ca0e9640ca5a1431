"""What stands in a topic: claims, groups and states, each one Kafka record. Pure.

The key of a Kafka record says what it is; little-endian:

    "TdmK" | version u16 | kind u16 | CRC-32C u32
    term i64 | prev i64 | state i64 | base id i64 | next id i64 | base tick u64 | last tick u64
    active bytes u64 | active tick u64

The checksum covers what stands behind it, and the value of a claim or a state. The value of a group
is our records, one behind the other, in the format of the segmented log with salt 0; each has its
own checksum.
"""

import struct
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from broker.ports.wal import Corrupt, UnknownFormat

MAGIC: Final = b"TdmK"
VERSION: Final = 1
_PREFIX = struct.Struct("<4sHHI")
_FIELDS = struct.Struct("<qqqqqQQQQ")
KEY_BYTES: Final = _PREFIX.size + _FIELDS.size
NOWHERE: Final = -1
"""The offset of what is not there."""

OnDamage = Callable[[Corrupt], None]
"""Raises what it is given, or lets the reader go on behind it."""


def damaged(topic: str, offset: int, reason: str) -> Corrupt:
    """The error about what stands at an offset."""
    return Corrupt(f"topic {topic}", offset, reason, "offset")


class EntryKind(IntEnum):
    """CLAIM: a new owner begins. GROUP: one group commit. STATE: what the log holds before it."""

    CLAIM = 1
    GROUP = 2
    STATE = 3


class EntryHead(NamedTuple):
    """The key of an entry.

    `prev`: the offset up to which its owner knew, when it wrote this, that no newer owner had
    begun. `state`: the offset of the owner's newest state, NOWHERE in a claim. A group has its ids
    and ticks, and `active_bytes` of records since that state with `active_tick` as their first.
    """

    kind: EntryKind
    term: int
    prev: int
    state: int = NOWHERE
    base_id: int = 0
    next_id: int = 0
    base_tick: int = 0
    last_tick: int = 0
    active_bytes: int = 0
    active_tick: int = 0


class TopicRecord(NamedTuple):
    """A record of Kafka as it stands there."""

    offset: int
    key: bytes | None
    value: bytes


class Entry(NamedTuple):
    """A record of Kafka that is ours."""

    offset: int
    head: EntryHead
    value: bytes


def encode_key(head: EntryHead, value: bytes) -> bytes:
    """The key for an entry with this value."""
    kind, *fields = head
    packed = _FIELDS.pack(*fields)
    return _PREFIX.pack(MAGIC, VERSION, kind, _checksum(kind, packed, value)) + packed


def entries_of(found: Iterable[TopicRecord], topic: str, on_damage: OnDamage) -> list[Entry]:
    """Those that are ours; each other one is told. Raises UnknownFormat for a newer version."""
    entries = []
    for each in found:
        try:
            entries.append(Entry(each.offset, _head(each, topic), each.value))
        except _NotOurs as reason:
            on_damage(damaged(topic, each.offset, str(reason)))
    return entries


class _NotOurs(Exception):
    pass


def _head(stored: TopicRecord, topic: str) -> EntryHead:
    key = stored.key
    if key is None or len(key) < _PREFIX.size or not key.startswith(MAGIC):
        raise _NotOurs("this record was not written by Tidemark")
    _, version, kind, checksum = _PREFIX.unpack_from(key)
    if version > VERSION:
        raise UnknownFormat(f"{topic} at offset {stored.offset}", version, VERSION)
    packed = key[_PREFIX.size :]
    if len(packed) != _FIELDS.size or kind not in EntryKind.__members__.values():
        raise _NotOurs("its key has another form than Tidemark's")
    if _checksum(kind, packed, stored.value) != checksum:
        raise _NotOurs("the checksum of its key does not match")
    return EntryHead(EntryKind(kind), *_FIELDS.unpack(packed))


def _checksum(kind: int, packed: bytes, value: bytes) -> int:
    # A group's records have checksums of their own, which every reader verifies.
    covered = b"" if kind == EntryKind.GROUP else value
    return int(crc32c_extend(crc32c(packed), covered))
