"""Keys by which nodes find the collections that are compacted: at the id of each, how.

They are written together with the record of the collection, which says the same.
"""

from collections.abc import Mapping
from typing import Any, Final

from broker.coordinator.json_records import decode_fields, encode_fields
from broker.model.collection import Collection
from broker.model.ids import CollectionId
from broker.model.retention.compaction import Compaction
from broker.ports.meta import MetaStore
from broker.ports.meta_writes import all_entries

COMPACTED_PREFIX: Final = "collection-compacted/"


def compacted_key(id: CollectionId) -> str:
    """The key at which the compaction of a collection stands."""
    return f"{COMPACTED_PREFIX}{id}"


def compaction_fields(it: Compaction) -> dict[str, int]:
    """A compaction as fields of a record."""
    return {"lag_ms": it.lag_ms, "tombstone_ms": it.tombstone_ms}


def compaction_of(fields: Mapping[str, Any]) -> Compaction:
    """The compaction in the fields of a record."""
    return Compaction(int(fields["lag_ms"]), int(fields["tombstone_ms"]))


def compaction_puts(after: Collection) -> dict[str, bytes]:
    """What to write beside the record of a collection."""
    if after.compaction is None:
        return {}
    return {compacted_key(after.id): encode_fields(compaction_fields(after.compaction))}


def compaction_deletes(before: Collection, after: Collection | None) -> list[str]:
    """What to delete beside a change of a collection; `after` None: it is dropped."""
    ends = before.compaction is not None and (after is None or after.compaction is None)
    return [compacted_key(before.id)] if ends else []


async def compactions_in(store: MetaStore) -> Mapping[CollectionId, Compaction]:
    """All compacted collections. MetaError."""
    found: dict[CollectionId, Compaction] = {}
    async for key, entry in all_entries(store, COMPACTED_PREFIX):
        id = CollectionId(int(key.removeprefix(COMPACTED_PREFIX)))
        found[id] = decode_fields(key, entry.value, compaction_of)
    return found
