"""Keys by which nodes find the collections that have a retention of their own.

At the id of each stands its name, beside its record, which has the limits; and one key is written
at each change, so that its revision tells whether there was any. All are written together.
"""

from typing import Final

from broker.coordinator.json_records import encode_fields
from broker.coordinator.records import encode_number
from broker.model.collection import Collection
from broker.model.ids import CollectionId

RETAINED_PREFIX: Final = "collection-retained/"
RETENTIONS_KEY: Final = "collection-retentions"


def retained_key(id: CollectionId) -> str:
    """The key at which the name of a collection with a retention stands."""
    return f"{RETAINED_PREFIX}{id}"


def retention_puts(before: Collection | None, after: Collection | None) -> dict[str, bytes]:
    """What to write beside a change of a collection; None: it is not there before or after."""
    if _retention_of(before) == _retention_of(after):
        return {}
    some = before or after
    assert some is not None
    puts = {RETENTIONS_KEY: encode_number(some.id)}
    if after is not None and not after.retention.keeps_all:
        place = {"name": after.name, "database": after.database}
        puts[retained_key(after.id)] = encode_fields(place)
    return puts


def retention_deletes(before: Collection, after: Collection | None) -> list[str]:
    """What to delete beside a change of a collection; `after` None: it is dropped."""
    if before.retention.keeps_all or (after is not None and not after.retention.keeps_all):
        return []
    return [retained_key(before.id)]


def _retention_of(it: Collection | None) -> tuple[int, int]:
    return (0, 0) if it is None else (it.retention.age_ms_max, it.retention.bytes_max)
