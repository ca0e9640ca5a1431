"""What changes in the metadata of a backup before a broker may start on it.

The backup has the records of a cluster that went on living. Restored as they are, they would give
out terms and ids again, wait for nodes that are not there, or call them. Every other record is kept
as it is: README.md says why each agrees with the log up to the tick.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from broker.coordinator.broadcast.broadcast_records import INCARNATION_KEY as BROADCAST_ID_KEY
from broker.coordinator.catalog.collection_records import ADOPTED_KEY
from broker.coordinator.leases.leader_records import LEADER_KEY
from broker.coordinator.records import (
    CLUSTER_KEY,
    COLLECTION_ID_KEY,
    INCARNATION_KEY,
    LEASE_KEY,
    NODE_PREFIX,
    PCHANNEL_PREFIX,
    SESSION_KEY,
    TICK_BOUND_KEY,
    decode_cluster,
    decode_number,
    decode_pchannel,
    encode_cluster,
    encode_number,
    encode_pchannel,
)
from broker.core.backup.restored_numbers import (
    counter_after,
    ids_after,
    term_after,
    tick_bound_after,
)
from broker.master.ids.id_allocator import ID_BOUND_KEY
from broker.model.channel import PChannelState
from broker.model.ids import Term, TimeTick

COUNTERS: Final = (
    COLLECTION_ID_KEY,
    BROADCAST_ID_KEY,
    INCARNATION_KEY,
    SESSION_KEY,
    LEADER_KEY,
)
"""All of them jump, also one that is not stored yet: it may have been used after the backup."""


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """`terms`: the newest of each log. `identity`: a new one, so that nodes of the old cluster are
    refused, and a backup can tell the two data folders apart."""

    tick: TimeTick
    now_ms: int
    terms: Mapping[str, Term]
    identity: str


@dataclass(frozen=True, slots=True)
class MetadataChanges:
    """What to write, and what to delete."""

    puts: Mapping[str, bytes]
    deletes: tuple[str, ...]


def changes_for(entries: Mapping[str, bytes], point: RestorePoint) -> MetadataChanges:
    """The changes; raises MetaError for a record that this version cannot read."""
    puts: dict[str, bytes] = {}
    for key in COUNTERS:
        puts[key] = encode_number(counter_after(_number(entries, key)))
    puts[ID_BOUND_KEY] = encode_number(ids_after(_number(entries, ID_BOUND_KEY)))
    bound_ms = tick_bound_after(_number(entries, TICK_BOUND_KEY), point.tick, point.now_ms)
    puts[TICK_BOUND_KEY] = encode_number(bound_ms)
    for key, value in entries.items():
        change = _CHANGES.get(key) or (_unowned if key.startswith(PCHANNEL_PREFIX) else None)
        if change is not None:
            puts[key] = change(key, value, point)
    # Nodes and leases of the old cluster: nobody of this one has granted or may wait for any.
    gone = tuple(key for key in entries if key in _FORGOTTEN or key.startswith(NODE_PREFIX))
    return MetadataChanges(puts, gone)


def _unowned(key: str, value: bytes, point: RestorePoint) -> bytes:
    """A pchannel without an owner, at a term above all that its log and its record know."""
    meta = decode_pchannel(key, value)
    term = term_after(meta.term, point.terms.get(meta.name, Term(0)))
    return encode_pchannel(
        replace(meta, term=term, state=PChannelState.UNAVAILABLE, node=None, histories=())
    )


def _renamed(key: str, value: bytes, point: RestorePoint) -> bytes:
    return encode_cluster(replace(decode_cluster(key, value), identity=point.identity))


_FORGOTTEN: Final = (LEASE_KEY, ADOPTED_KEY)
"""The second: the log may end before a collection was announced, so the master looks again."""
_CHANGES: Final[Mapping[str, Callable[[str, bytes, RestorePoint], bytes]]] = {CLUSTER_KEY: _renamed}


def _number(entries: Mapping[str, bytes], key: str) -> int:
    value = entries.get(key)
    return 0 if value is None else decode_number(key, value)
