"""What the catalog knows of collections, for checking what is appended to their vchannels.

Implemented by `broker/coordinator/catalog/stored_row_schemas.py` over the metadata store.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from broker.model.collection import Collection, RowSchema
from broker.model.ids import CollectionId, TimeTick
from broker.model.retention.compaction import Compaction


@dataclass(frozen=True, slots=True)
class Shard:
    """A vchannel of a collection. `rows`: the collection has a schema, so it takes rows only.

    `database`: "" is the default one.
    """

    collection: str
    rows: bool
    database: str = ""


class NoShard(Enum):
    """A vchannel that is of no collection.

    DROPPED: it was, or its name has the id of one that was. Ids are not used again.
    """

    OTHER = auto()
    DROPPED = auto()


@dataclass(frozen=True, slots=True)
class CatalogVersion:
    """`revision` grows with each creation and drop by any process, `drops` with each drop."""

    revision: int
    drops: int


class RowSchemas(Protocol):
    """Callers cache the answers. The cost does not grow with the number of collections.

    Every call raises Refused(INNER) if the store does not answer.
    """

    @property
    def changes(self) -> int:
        """Grows with each `note_change`: `version` is to be read again. Not a call of the store."""
        ...

    def note_change(self) -> None:
        """A collection was created or dropped by this process."""
        ...

    async def newest(self, collection: CollectionId) -> RowSchema | None:
        """The stored schema; None if the collection has none or does not exist."""
        ...

    async def name_of(self, collection: CollectionId) -> str | None:
        """The name of the collection; None if it does not exist."""
        ...

    async def found(self, collection: CollectionId) -> Collection | None:
        """The collection as it is stored; None if it does not exist."""
        ...

    async def version(self) -> CatalogVersion:
        """The version now: answers read after it are at least as new."""
        ...

    async def shard(self, vchannel: str) -> Shard | NoShard:
        """What collection a vchannel is of. Newer than a `version` that was read before."""
        ...

    async def compactions(self) -> Mapping[CollectionId, Compaction]:
        """The collections that are compacted by key; one read."""
        ...

    async def dropped_at(self, vchannel: str) -> TimeTick | None:
        """The tick of the drop of the collection that the vchannel was of.

        None when there was none, or when its drop was not recorded with its vchannels.
        """
        ...


class NoRowSchemas:
    """For a process that knows of no collections."""

    changes = 0

    def note_change(self) -> None:
        pass

    async def newest(self, collection: CollectionId) -> RowSchema | None:
        return None

    async def name_of(self, collection: CollectionId) -> str | None:
        return None

    async def found(self, collection: CollectionId) -> Collection | None:
        return None

    async def version(self) -> CatalogVersion:
        return CatalogVersion(0, 0)

    async def shard(self, vchannel: str) -> Shard | NoShard:
        return NoShard.OTHER

    async def compactions(self) -> Mapping[CollectionId, Compaction]:
        return {}

    async def dropped_at(self, vchannel: str) -> TimeTick | None:
        return None
