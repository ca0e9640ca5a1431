"""What the catalog knows of collections, for checking what is appended to their vchannels.

Implemented by `broker/coordinator/catalog/stored_row_schemas.py` over the metadata store.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from broker.model.collection import RowSchema
from broker.model.ids import CollectionId


@dataclass(frozen=True, slots=True)
class Shard:
    """A vchannel of a collection. `rows`: the collection has a schema, so it takes rows only."""

    collection: str
    rows: bool


@dataclass(frozen=True, slots=True)
class CollectionShards:
    """The vchannels of all collections at one moment. `given`: ids that were given out by then."""

    shards: Mapping[str, Shard] = field(default_factory=dict)
    live: frozenset[CollectionId] = frozenset()
    given: range = range(0)

    def was_dropped(self, collection: CollectionId) -> bool:
        """Whether there was a collection of this id that is gone."""
        return collection in self.given and collection not in self.live


class RowSchemas(Protocol):
    """Called seldom: callers cache the answers."""

    @property
    def changes(self) -> int:
        """Grows with each `note_change`: what was read before may be outdated."""
        ...

    def note_change(self) -> None:
        """A collection was created or dropped by this process."""
        ...

    async def newest(self, collection: CollectionId) -> RowSchema | None:
        """The stored schema; None if the collection has none or does not exist.

        Raises Refused(INNER) if the store does not answer.
        """
        ...

    async def shards(self) -> CollectionShards:
        """The vchannels of all collections now. Raises Refused(INNER)."""
        ...


class NoRowSchemas:
    """For a process that knows of no collections."""

    changes = 0

    def note_change(self) -> None:
        pass

    async def newest(self, collection: CollectionId) -> RowSchema | None:
        return None

    async def shards(self) -> CollectionShards:
        return CollectionShards()
