"""Changes of the master's table as they are broadcast: complete, with every id.

Whoever applies them in the order of the control channel has the table.
"""

from dataclasses import dataclass

from broker.model.collection import RowSchema
from broker.model.ids import CollectionId, PartitionId, VChannelName
from broker.model.master.fields import TableSchema
from broker.model.retention.compaction import Compaction
from broker.model.retention.policy import Retention

DEFAULT_PARTITION = "_default"
DEFAULT_DATABASE = "default"
"""The name of the default database where one is shown; requests and records have ""."""


@dataclass(frozen=True, slots=True)
class Index:
    """An index on one field of a collection; `params` sorted by key."""

    id: int
    name: str
    field: str
    field_id: int
    params: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class AddCollection:
    """A new collection with its first partitions, `_default` among them if Tidemark made it."""

    database: str
    name: str
    id: CollectionId
    vchannels: tuple[VChannelName, ...]
    partitions: tuple[tuple[str, PartitionId], ...]
    schema: RowSchema | None = None
    table: TableSchema | None = None
    retention: Retention = Retention()
    compaction: Compaction | None = None


@dataclass(frozen=True, slots=True)
class RemoveCollection:
    """The collection, its partitions, aliases and indexes are gone."""

    id: CollectionId
    name: str
    database: str


@dataclass(frozen=True, slots=True)
class AlterSchema:
    """A new version of a collection's schema. `schema`: None in a change that Milvus has made."""

    id: CollectionId
    name: str
    database: str
    schema: RowSchema | None
    table: TableSchema


@dataclass(frozen=True, slots=True)
class AlterRetention:
    """How much each vchannel of a collection keeps from here on."""

    id: CollectionId
    name: str
    database: str
    retention: Retention


@dataclass(frozen=True, slots=True)
class AlterCompaction:
    """How a collection is compacted from here on; None: not any more."""

    id: CollectionId
    name: str
    database: str
    compaction: Compaction | None


@dataclass(frozen=True, slots=True)
class AddPartition:
    """A new partition of a collection. `of_rows`: the collection's rows are Arrow's."""

    collection: CollectionId
    collection_name: str
    database: str
    name: str
    id: PartitionId
    of_rows: bool = False


@dataclass(frozen=True, slots=True)
class RemovePartition:
    """A partition is gone. `of_rows`: as above."""

    collection: CollectionId
    collection_name: str
    database: str
    name: str
    id: PartitionId
    of_rows: bool = False


@dataclass(frozen=True, slots=True)
class PointAlias:
    """An alias stands for this collection from here on."""

    database: str
    alias: str
    collection: CollectionId
    collection_name: str


@dataclass(frozen=True, slots=True)
class RemoveAlias:
    """An alias is gone."""

    database: str
    alias: str


@dataclass(frozen=True, slots=True)
class PutIndex:
    """An index is new, or has another name. `renamed`: another one that made room for its name."""

    collection: CollectionId
    collection_name: str
    database: str
    index: Index
    renamed: Index | None = None


@dataclass(frozen=True, slots=True)
class RemoveIndexes:
    """Indexes of a collection are gone; none: nothing changes."""

    collection: CollectionId
    collection_name: str
    database: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AddDatabase:
    """A new database."""

    name: str
    id: int


@dataclass(frozen=True, slots=True)
class RemoveDatabase:
    """A database is gone."""

    name: str
    id: int


TableChange = (
    AddCollection
    | RemoveCollection
    | AlterSchema
    | AlterRetention
    | AlterCompaction
    | AddPartition
    | RemovePartition
    | PointAlias
    | RemoveAlias
    | PutIndex
    | RemoveIndexes
    | AddDatabase
    | RemoveDatabase
)
