"""Requests for changes of the master's table, as callers make them."""

from dataclasses import dataclass

from broker.model.broadcast import Broadcast, ResourceKey
from broker.model.collection import RowSchema
from broker.model.ids import CollectionId
from broker.model.master.fields import TableSchema
from broker.model.master.table_change import TableChange
from broker.model.retention.compaction import Compaction
from broker.model.retention.policy import Retention


@dataclass(frozen=True, slots=True)
class CreateCollection:
    """Create a collection. `database` "" is the default one, in every request.

    `schema`: its rows are Arrow's. `table`: its fields, for those who read the log; with a `table`
    alone it takes Milvus's messages.
    """

    name: str
    shards: int
    schema: RowSchema | None = None
    table: TableSchema | None = None
    database: str = ""
    retention: Retention = Retention()
    compaction: Compaction | None = None


@dataclass(frozen=True, slots=True)
class AdoptCollection:
    """Announce a collection of an earlier release, which has no partitions yet.

    `table`: the fields of its `schema`, unless that has changed meanwhile.
    """

    name: str
    id: CollectionId
    table: TableSchema | None = None
    schema: RowSchema | None = None


@dataclass(frozen=True, slots=True)
class DropCollection:
    """Drop a collection with its partitions, aliases and indexes."""

    name: str
    database: str = ""


@dataclass(frozen=True, slots=True)
class ChangeSchema:
    """Replace the schema of a collection, unless it is not `before` any more."""

    name: str
    before: RowSchema
    after: RowSchema
    table: TableSchema
    database: str = ""


@dataclass(frozen=True, slots=True)
class ChangeRetention:
    """Replace limits of a collection's retention as `changed_retention` says; None: leave as is."""

    name: str
    retention_ms: int | None = None
    retention_bytes: int | None = None
    database: str = ""


@dataclass(frozen=True, slots=True)
class ChangeCompaction:
    """Replace the compaction of a collection; None: it has none any more."""

    name: str
    compaction: Compaction | None
    database: str = ""


@dataclass(frozen=True, slots=True)
class CreatePartition:
    """Add a partition to a collection."""

    collection: str
    partition: str
    database: str = ""


@dataclass(frozen=True, slots=True)
class DropPartition:
    """Drop a partition, but never `_default`."""

    collection: str
    partition: str
    database: str = ""


@dataclass(frozen=True, slots=True)
class CreateAlias:
    """Give a collection another name. `alter`: the alias may stand for another collection."""

    collection: str
    alias: str
    alter: bool = False
    database: str = ""


@dataclass(frozen=True, slots=True)
class DropAlias:
    """Remove another name of a collection."""

    alias: str
    database: str = ""


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """Describe an index on a field; `params` are compared without their order."""

    collection: str
    field: str
    params: tuple[tuple[str, str], ...]
    name: str = ""
    database: str = ""


@dataclass(frozen=True, slots=True)
class DropIndex:
    """Remove an index; one that is unknown is no error. `name` "": the only one of the field."""

    collection: str
    field: str
    name: str = ""
    database: str = ""


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """Add a database."""

    database: str


@dataclass(frozen=True, slots=True)
class DropDatabase:
    """Remove a database without collections."""

    database: str


@dataclass(frozen=True, slots=True)
class GivenBroadcast:
    """A change that a client of Milvus broadcasts, with the ids that it has chosen."""

    broadcast: Broadcast
    change: TableChange


Ddl = (
    CreateCollection
    | AdoptCollection
    | DropCollection
    | ChangeSchema
    | ChangeRetention
    | ChangeCompaction
    | CreatePartition
    | DropPartition
    | CreateAlias
    | DropAlias
    | CreateIndex
    | DropIndex
    | CreateDatabase
    | DropDatabase
    | GivenBroadcast
)


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """A request whose broadcast is made once its keys are held.

    `request_key` and `fingerprint` as in Broadcast; `timestamp` is the caller's, 0 for none.
    """

    ddl: Ddl
    keys: tuple[ResourceKey, ...]
    request_key: str
    fingerprint: str
    timestamp: int = 0
