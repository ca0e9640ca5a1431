"""tidemark.v1.Master: reads of the meta table. They wait for no change."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from grpclib.const import Handler

from broker.codec.milvus_schemas import key_values, user_schema
from broker.core.master.table_names import checked_database
from broker.edge.master.cleanup_asked import wire_compaction
from broker.edge.master.row_definitions import wire_schema
from broker.edge.master.visible_pages import named, visible_page
from broker.edge.rpc.access.access import CURRENT, everything
from broker.edge.rpc.middleware import Middleware
from broker.model.collection import Collection
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import CollectionId
from broker.model.master.table_change import DEFAULT_DATABASE, DEFAULT_PARTITION
from broker.ports.master.table_reads import Description, MetaTableReads
from schemas.generated.tidemark import v1

SERVICE: Final = "/tidemark.v1.Master/"
PAGE_MAX: Final = 1000
NAME_CHARACTERS_MAX: Final = 255


class TableService:
    """Has, Describe, Show."""

    def __init__(self, middleware: Middleware, table: MetaTableReads) -> None:
        self._middleware = middleware
        self._table = table

    def __mapping__(self) -> Mapping[str, Handler]:
        unary = self._middleware.unary
        return {
            SERVICE + "HasCollection": unary(v1.HasCollectionRequest, self.has_collection),
            SERVICE + "DescribeCollection": unary(v1.DescribeCollectionRequest, self.describe),
            SERVICE + "ShowCollections": unary(v1.ShowCollectionsRequest, self.collections),
            SERVICE + "HasPartition": unary(v1.HasPartitionRequest, self.has_partition),
            SERVICE + "ShowPartitions": unary(v1.ShowPartitionsRequest, self.partitions),
            SERVICE + "CountPartitions": unary(v1.CountPartitionsRequest, self.count_partitions),
            SERVICE + "DescribeIndex": unary(v1.DescribeIndexRequest, self.indexes),
            SERVICE + "ShowAliases": unary(v1.ShowAliasesRequest, self.aliases),
            SERVICE + "ListDatabases": unary(v1.ListDatabasesRequest, self.databases),
        }

    async def has_collection(self, request: v1.HasCollectionRequest) -> v1.BoolResponse:
        """Whether there is one, by its name or an alias."""
        database, name = checked_database(request.db_name), _named(request.collection_name)
        return v1.BoolResponse(value=await self._table.has_collection(database, name))

    async def describe(
        self, request: v1.DescribeCollectionRequest
    ) -> v1.DescribeCollectionResponse:
        """A collection by its name, an alias or its id. CHANNEL_NOT_EXIST."""
        database, id = checked_database(request.db_name), CollectionId(request.collection_id)
        name = "" if id and not request.collection_name else _named(request.collection_name)
        found = await self._table.describe(database, name, id)
        shows = await CURRENT.get().sight()
        aliases = [it for it in found.aliases if shows(named(found.collection.database, it))]
        return described(replace(found, aliases=tuple(aliases)))

    async def collections(self, request: v1.ShowCollectionsRequest) -> v1.ShowCollectionsResponse:
        """A page of the collections of a database that the caller sees; see `visible_page`."""
        limit = checked_limit(request.limit)
        database, after = checked_database(request.db_name), checked_after(request.after)
        page = await visible_page(self._table, database, after, limit)
        return v1.ShowCollectionsResponse(
            collection_names=[it.name for it in page],
            collection_ids=[it.id for it in page],
            more=len(page) == limit,
        )

    async def count_partitions(
        self, request: v1.CountPartitionsRequest
    ) -> v1.CountPartitionsResponse:
        """A page of the numbers of partitions, of the collections of all databases."""
        limit = checked_limit(request.limit)
        found = await self._table.partition_counts(CollectionId(request.after), limit)
        return v1.CountPartitionsResponse(
            collection_ids=[id for id, _ in found],
            counts=[it for _, it in found],
            more=len(found) == limit,
        )

    async def has_partition(self, request: v1.HasPartitionRequest) -> v1.BoolResponse:
        """An unknown collection is an error: CHANNEL_NOT_EXIST."""
        database, name = checked_database(request.db_name), _named(request.collection_name)
        partition = _named(request.partition_name)
        found = await self._table.partition(database, name, partition)
        return v1.BoolResponse(value=found is not None)

    async def partitions(self, request: v1.ShowPartitionsRequest) -> v1.ShowPartitionsResponse:
        """All partitions of a collection. CHANNEL_NOT_EXIST."""
        database, name = checked_database(request.db_name), _named(request.collection_name)
        found = await self._table.partitions(database, name)
        return v1.ShowPartitionsResponse(
            partition_ids=[id for _, id in found], partition_names=[it for it, _ in found]
        )

    async def indexes(self, request: v1.DescribeIndexRequest) -> v1.DescribeIndexResponse:
        """The indexes of a field, or of all. CHANNEL_NOT_EXIST; INVALID_ARGUMENT: no such field."""
        database, name = checked_database(request.db_name), _named(request.collection_name)
        found = await self._table.indexes(database, name, request.field_name)
        return v1.DescribeIndexResponse(
            index_descriptions=[
                v1.IndexDescription(
                    index_name=it.name,
                    params=[
                        v1.KeyValuePair(key=pair.key, value=pair.value)
                        for pair in key_values(dict(it.params))
                    ],
                    index_id=it.id,
                    field_name=it.field,
                    field_id=it.field_id,
                    state="pending",
                )
                for it in found
            ]
        )

    async def aliases(self, request: v1.ShowAliasesRequest) -> v1.ShowAliasesResponse:
        """Aliases of a collection, or of all of a database."""
        database, name = checked_database(request.db_name), request.collection_name
        shows = await CURRENT.get().sight()
        try:
            every = await self._table.aliases(database, _named(name) if name else "")
        except Refused as refused:
            # An unknown database is as an empty one, to who does not see everything.
            unknown = refused.refusal.code is StreamingCode.CHANNEL_NOT_EXIST
            if name or shows is everything or not unknown:
                raise
            every = ()
        found = [
            (alias, of)
            for alias, of in every
            if shows(named(database, alias)) and (name or shows(named(database, of)))
        ]
        return v1.ShowAliasesResponse(
            aliases=[it for it, _ in found], collection_names=[it for _, it in found]
        )

    async def databases(self, _: v1.ListDatabasesRequest) -> v1.ListDatabasesResponse:
        """The default database, and each other one of which the caller sees a collection."""
        found = await self._table.databases()
        if await CURRENT.get().sight() is not everything:
            found = [(it, id) for it, id in found if await self._sees_any(it)]
        return v1.ListDatabasesResponse(
            db_names=[it for it, _ in found], db_ids=[it for _, it in found]
        )

    async def _sees_any(self, database: str) -> bool:
        if database == DEFAULT_DATABASE:
            return True
        return len(await visible_page(self._table, database, "", 1)) > 0


def described(it: Description) -> v1.DescribeCollectionResponse:
    """The wire form of a collection."""
    answer = of_collection(it.collection)
    answer.db_id = it.database_id
    answer.aliases = list(it.aliases)
    answer.partitions = it.partitions
    if it.fields is not None:
        answer.milvus_schema = user_schema(it.fields.milvus)
    return answer


def of_collection(collection: Collection) -> v1.DescribeCollectionResponse:
    """The wire form of what the record of a collection has."""
    answer = v1.DescribeCollectionResponse(
        db_name=collection.database or DEFAULT_DATABASE,
        collection_id=collection.id,
        collection_name=collection.name,
        default_partition_name=DEFAULT_PARTITION,
        default_partition_id=collection.default_partition,
        vchannels=list(collection.vchannels),
        created_ms=collection.created_ms,
        created_tick=collection.created_tick,
        retention_ms=collection.retention.age_ms_max,
        retention_bytes=collection.retention.bytes_max,
        compaction=wire_compaction(collection.compaction),
    )
    if collection.schema is not None:
        answer.schema = wire_schema(collection.schema)
    return answer


def checked_limit(limit: int) -> int:
    """How many entries a page has at most; 0 stands for as many as there may be. Refused."""
    if not 0 <= limit <= PAGE_MAX:
        raise invalid_argument(f"the limit must be 1 to {PAGE_MAX}, not {limit}")
    return limit or PAGE_MAX


def checked_after(name: str) -> str:
    """The name that a page begins after, "" for the first page. Refused."""
    return _named(name) if name else ""


def _named(name: str) -> str:
    """A name that may become a key. An unknown one is no error here, a path trick is."""
    if not name or len(name) > NAME_CHARACTERS_MAX or "/" in name:
        shown = repr(name[:80])
        raise Refused(
            StreamingCode.INVALID_ARGUMENT,
            f"{shown} is not a name: it must have 1 to {NAME_CHARACTERS_MAX} characters and no '/'",
        )
    return name
