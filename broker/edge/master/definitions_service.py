"""tidemark.v1.Master: changes of definitions, each answered when it has taken effect."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from grpclib.const import Handler

from broker.codec.milvus_schemas import BadSchema, given_schema, user_schema
from broker.coordinator.catalog.messages import NameTaken
from broker.core.master.schema_rules import check_fields
from broker.core.master.table_names import checked_database, shown
from broker.core.naming import COLLECTION_NAME_LENGTH_MAX
from broker.core.space.retention_limits import changed_retention
from broker.edge.master.ddl_calls import DdlCalls, DoneChange
from broker.edge.master.row_definitions import defined_rows
from broker.edge.master.table_service import SERVICE, described, of_collection
from broker.edge.rpc.middleware import Middleware
from broker.model.collection import Collection
from broker.model.failure import invalid_argument
from broker.model.ids import TICK_LOGICAL_BITS, CollectionId, PartitionId
from broker.model.master.ddl import (
    ChangeRetention,
    CreateAlias,
    CreateCollection,
    CreateDatabase,
    CreateIndex,
    CreatePartition,
    DropAlias,
    DropCollection,
    DropDatabase,
    DropIndex,
    DropPartition,
)
from broker.model.master.fields import TableSchema
from broker.model.retention.policy import Retention
from broker.ports.master.table_reads import MetaTableReads
from schemas.generated.tidemark import v1

SCHEMA_BYTES_MAX: Final = 256 * 1024


class DefinitionsService:
    """Create, Alter, Drop."""

    def __init__(self, middleware: Middleware, calls: DdlCalls, table: MetaTableReads) -> None:
        self._middleware = middleware
        self._calls = calls
        self._table = table

    def __mapping__(self) -> Mapping[str, Handler]:
        def unary(kind: type[Any], answer: Callable[[Any], Awaitable[Any]]) -> Handler:
            # A change may wait for others of its name, for as long as its caller does.
            return self._middleware.unary(kind, answer, interruptible=True)

        return {
            SERVICE + "CreateCollection": unary(v1.MasterCreateCollectionRequest, self.create),
            SERVICE + "AlterCollection": unary(v1.MasterAlterCollectionRequest, self.alter),
            SERVICE + "DropCollection": unary(v1.MasterDropCollectionRequest, self.drop),
            SERVICE + "CreatePartition": unary(v1.CreatePartitionRequest, self.create_partition),
            SERVICE + "DropPartition": unary(v1.DropPartitionRequest, self.drop_partition),
            SERVICE + "CreateIndex": unary(v1.CreateIndexRequest, self.create_index),
            SERVICE + "DropIndex": unary(v1.DropIndexRequest, self.drop_index),
            SERVICE + "CreateAlias": unary(v1.CreateAliasRequest, self.create_alias),
            SERVICE + "DropAlias": unary(v1.DropAliasRequest, self.drop_alias),
            SERVICE + "CreateDatabase": unary(v1.CreateDatabaseRequest, self.create_database),
            SERVICE + "DropDatabase": unary(v1.DropDatabaseRequest, self.drop_database),
        }

    async def create(
        self, request: v1.MasterCreateCollectionRequest
    ) -> v1.DescribeCollectionResponse:
        """INVALID_ARGUMENT: bad name, shards or schema, or the name is taken."""
        if request.arrow_schema and request.milvus_schema:
            raise invalid_argument("the request has two schemas; set one of both")
        rows, table = None, None
        if request.arrow_schema:
            rows, table = await defined_rows(request.collection_name, request.arrow_schema)
        if request.milvus_schema:
            table = _given(request.collection_name, request.milvus_schema)
        database = checked_database(request.db_name)
        name, shards = request.collection_name, request.shards or 1
        retention = changed_retention(
            name, Retention(), request.retention_ms, request.retention_bytes
        )
        ddl = CreateCollection(name, shards, rows, table, database, retention)
        # Before the change: afterwards a failed read would hide that it took effect.
        database_id = await self._table.database(database)
        try:
            done = await self._calls.change(ddl, request.base)
        except NameTaken as taken:
            if not request.return_existing:
                raise
            existing = described(await self._table.describe(database, "", taken.collection.id))
            existing.existed = True
            return existing
        answer = of_collection(created(ddl, done))
        answer.db_id = database_id
        answer.partitions = 1
        answer.milvus_schema = b"" if table is None else user_schema(table.milvus)
        return answer

    async def alter(self, request: v1.MasterAlterCollectionRequest) -> v1.DdlResponse:
        """CHANNEL_NOT_EXIST when there is none; INVALID_ARGUMENT: a limit, or none is named."""
        database, name = checked_database(request.db_name), _named(request.collection_name)
        ddl = ChangeRetention(name, *retention_asked(request), database)
        done = await self._calls.change(ddl, request.base)
        return v1.DdlResponse(time_tick=done.tick)

    async def drop(self, request: v1.MasterDropCollectionRequest) -> v1.DdlResponse:
        """CHANNEL_NOT_EXIST when there is none."""
        database, name = checked_database(request.db_name), _named(request.collection_name)
        done = await self._calls.change(DropCollection(name, database), request.base)
        return v1.DdlResponse(time_tick=done.tick)

    async def create_partition(self, request: v1.CreatePartitionRequest) -> v1.DdlResponse:
        """CHANNEL_NOT_EXIST: no such collection; INVALID_ARGUMENT: the name, or too many."""
        name, database = _named(request.collection_name), checked_database(request.db_name)
        ddl = CreatePartition(name, request.partition_name, database)
        return (await self._calls.change(ddl, request.base)).response()

    async def drop_partition(self, request: v1.DropPartitionRequest) -> v1.DdlResponse:
        """CHANNEL_NOT_EXIST: no such collection or partition; INVALID_ARGUMENT: the default one."""
        name, database = _named(request.collection_name), checked_database(request.db_name)
        ddl = DropPartition(name, request.partition_name, database)
        done = await self._calls.change(ddl, request.base)
        return v1.DdlResponse(time_tick=done.tick)

    async def create_index(self, request: v1.CreateIndexRequest) -> v1.DdlResponse:
        """CHANNEL_NOT_EXIST: no such collection; INVALID_ARGUMENT: the field or the parameters."""
        name, database = _named(request.collection_name), checked_database(request.db_name)
        params = tuple(sorted((it.key, it.value) for it in request.params))
        ddl = CreateIndex(name, request.field_name, params, request.index_name, database)
        return (await self._calls.change(ddl, request.base)).response()

    async def drop_index(self, request: v1.DropIndexRequest) -> v1.DdlResponse:
        """CHANNEL_NOT_EXIST: no such collection; INVALID_ARGUMENT: several indexes fit."""
        name, database = _named(request.collection_name), checked_database(request.db_name)
        ddl = DropIndex(name, request.field_name, request.index_name, database)
        return (await self._calls.change(ddl, request.base)).response()

    async def create_alias(self, request: v1.CreateAliasRequest) -> v1.DdlResponse:
        """CHANNEL_NOT_EXIST: no such collection; INVALID_ARGUMENT: the name is taken."""
        name, database = _named(request.collection_name), checked_database(request.db_name)
        ddl = CreateAlias(name, request.alias, request.alter, database)
        return (await self._calls.change(ddl, request.base)).response()

    async def drop_alias(self, request: v1.DropAliasRequest) -> v1.DdlResponse:
        """CHANNEL_NOT_EXIST when there is none."""
        ddl = DropAlias(_named(request.alias), checked_database(request.db_name))
        return (await self._calls.change(ddl, request.base)).response()

    async def create_database(self, request: v1.CreateDatabaseRequest) -> v1.DdlResponse:
        """INVALID_ARGUMENT: the name is bad, or taken."""
        ddl = CreateDatabase(checked_database(request.db_name))
        return (await self._calls.change(ddl, request.base)).response()

    async def drop_database(self, request: v1.DropDatabaseRequest) -> v1.DdlResponse:
        """CHANNEL_NOT_EXIST: no such database; INVALID_ARGUMENT: it has collections."""
        ddl = DropDatabase(checked_database(request.db_name))
        done = await self._calls.change(ddl, request.base)
        return v1.DdlResponse(time_tick=done.tick)


def created(ddl: CreateCollection, done: DoneChange) -> Collection:
    """The collection as it was created; the same for a repeat, whatever became of it."""
    answer = done.answer
    return Collection(
        ddl.name,
        CollectionId(answer.id),
        answer.vchannels,
        done.tick >> TICK_LOGICAL_BITS,
        ddl.schema,
        ddl.database,
        PartitionId(answer.partition),
        done.tick,
        ddl.retention,
        ddl.compaction,
    )


def retention_asked(
    request: v1.MasterAlterCollectionRequest,
) -> tuple[int | None, int | None]:
    """The limits of the request, None where they stay. Refused when it changes nothing."""
    asked = request.retention_ms, request.retention_bytes
    if asked == (None, None):
        raise invalid_argument("the request changes nothing; name retention_ms or retention_bytes")
    return asked


def _given(name: str, data: bytes) -> TableSchema:
    if len(data) > SCHEMA_BYTES_MAX:
        raise invalid_argument(f"the schema has {len(data)} bytes; at most {SCHEMA_BYTES_MAX}")
    try:
        named, table = given_schema(data)
    except BadSchema as error:
        raise invalid_argument(f"bad schema: {error}") from error
    if named != name:
        raise invalid_argument(
            f"the schema is of collection {shown(named)}, the request of {shown(name)};"
            " use one name"
        )
    auto_id = any(it.auto_id for it in table.fields)
    check_fields(table.fields, auto_id=auto_id)
    return table


def _named(name: str) -> str:
    """A name that may become a key; whether it exists is checked when its keys are held."""
    if not name or len(name) > COLLECTION_NAME_LENGTH_MAX or "/" in name:
        raise invalid_argument(
            f"{shown(name)} is not a name: it must have 1 to {COLLECTION_NAME_LENGTH_MAX}"
            " characters and no '/'"
        )
    return name
