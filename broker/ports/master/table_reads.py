"""What everybody may ask of the meta table: reads, which wait for no change.

Implemented by `broker/master/table/stored_table.py` over the metadata store.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.model.collection import Collection
from broker.model.failure import invalid_argument
from broker.model.ids import CollectionId, PartitionId
from broker.model.master.clash import Clash
from broker.model.master.fields import TableSchema
from broker.model.master.table_change import Index


@dataclass(frozen=True, slots=True)
class Description:
    """A collection with what belongs to it. `fields`: None for one without a schema."""

    collection: Collection
    database_id: int
    fields: TableSchema | None
    aliases: tuple[str, ...]
    partitions: int


class MetaTableReads(Protocol):
    """A few reads of the store each, however many collections there are.

    A name may be an alias. Every call raises Refused: CHANNEL_NOT_EXIST for what does not exist,
    unless it says otherwise; INNER when the store does not answer.
    """

    async def has_collection(self, database: str, name: str) -> bool:
        """Whether there is one, by its name or an alias."""
        ...

    async def describe(self, database: str, name: str, id: CollectionId) -> Description:
        """A collection by its name or an alias; by its id if the name is empty."""
        ...

    async def page(self, database: str, after: str, limit: int) -> Sequence[Collection]:
        """The first `limit` collections of a database by name, after this one."""
        ...

    async def partition(self, database: str, collection: str, name: str) -> PartitionId | None:
        """The partition of this name; None if the collection has none."""
        ...

    async def partitions(self, database: str, collection: str) -> Sequence[tuple[str, PartitionId]]:
        """The partitions of a collection, by name."""
        ...

    async def indexes(self, database: str, collection: str, field: str) -> Sequence[Index]:
        """The indexes of a field, or with "" of all fields."""
        ...

    async def aliases(self, database: str, collection: str) -> Sequence[tuple[str, str]]:
        """Aliases with the collections that they stand for: of one collection, or with "" all."""
        ...

    async def database(self, name: str) -> int:
        """The id of a database; 0 for the default one and for an unknown one."""
        ...

    async def databases(self) -> Sequence[tuple[str, int]]:
        """Every database with its id, by name."""
        ...

    async def partition_counts(
        self, after: CollectionId, limit: int
    ) -> Sequence[tuple[CollectionId, int]]:
        """How many partitions collections of all databases have, by id as text, after this one."""
        ...

    async def clashes(self, after: str = "", limit: int = 100) -> Sequence[Clash]:
        """The first `limit` changes by Milvus's clients that could not be applied, by id."""
        ...


class NoMetaTable:
    """Of a process without a meta table: every call raises Refused."""

    async def has_collection(self, database: str, name: str) -> bool:
        """See MetaTableReads."""
        raise _NONE

    async def describe(self, database: str, name: str, id: CollectionId) -> Description:
        """See MetaTableReads."""
        raise _NONE

    async def page(self, database: str, after: str, limit: int) -> Sequence[Collection]:
        """See MetaTableReads."""
        raise _NONE

    async def partition(self, database: str, collection: str, name: str) -> PartitionId | None:
        """See MetaTableReads."""
        raise _NONE

    async def partitions(self, database: str, collection: str) -> Sequence[tuple[str, PartitionId]]:
        """See MetaTableReads."""
        raise _NONE

    async def indexes(self, database: str, collection: str, field: str) -> Sequence[Index]:
        """See MetaTableReads."""
        raise _NONE

    async def aliases(self, database: str, collection: str) -> Sequence[tuple[str, str]]:
        """See MetaTableReads."""
        raise _NONE

    async def database(self, name: str) -> int:
        """See MetaTableReads."""
        raise _NONE

    async def databases(self) -> Sequence[tuple[str, int]]:
        """See MetaTableReads."""
        raise _NONE

    async def partition_counts(
        self, after: CollectionId, limit: int
    ) -> Sequence[tuple[CollectionId, int]]:
        """See MetaTableReads."""
        raise _NONE

    async def clashes(self, after: str = "", limit: int = 100) -> Sequence[Clash]:
        """See MetaTableReads."""
        raise _NONE


_NONE = invalid_argument("this server has no meta table; ask the coordinator")
