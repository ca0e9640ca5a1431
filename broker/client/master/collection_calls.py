"""Collections and databases: created, dropped, described, listed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from broker.client.cluster.kept_limits import KeptLimits, compaction_from, limits_on_wire
from broker.client.cluster.service import ServiceCalls
from broker.client.errors import AlreadyExists, BadTarget
from broker.client.master.change_calls import ChangeCalls, ChangeOptions, Defined, number
from broker.model.collection import RowSchema
from broker.model.ids import CollectionId, PartitionId, TimeTick, VChannelName
from broker.model.master.fields import Field, FieldType
from broker.model.retention.compaction import Compaction
from broker.model.retention.policy import Retention
from schemas.arrow.columns import encode_schema
from schemas.arrow.ipc import BadArrow
from schemas.generated.milvus.proto import schema as milvus
from schemas.generated.tidemark import v1
from schemas.message_bytes import parsed

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class CollectionDescription:
    """A collection with what belongs to it. `vchannels[i]` is shard i.

    `milvus_schema`: the bytes of a `CollectionSchema` without the system fields, empty without a
    schema. `schema`: its columns, None when it was defined in Milvus's form. `partitions`: how many
    there are. `created_tick`: of its creation on the control channel. `retention`: of each
    vchannel.
    """

    name: str
    id: CollectionId
    database: str
    database_id: int
    vchannels: tuple[VChannelName, ...]
    default_partition: str
    default_partition_id: PartitionId
    partitions: int
    aliases: tuple[str, ...]
    created_ms: int
    created_tick: TimeTick
    schema: RowSchema | None
    milvus_schema: bytes
    retention: Retention = Retention()
    compaction: Compaction | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of its rows with their types in Milvus's terms; empty without a schema."""
        given = parsed(milvus.CollectionSchema, self.milvus_schema)
        return tuple(_field(it) for it in given.fields)


class KeptOptions(ChangeOptions, KeptLimits, total=False):
    """With how much each vchannel of a collection keeps."""


class CollectionCalls:
    """Part of `log.master`. Errors that may pass are retried until the deadline, then raised.

    Changes take the options of `ChangeOptions`, and have taken effect everywhere when they return.
    """

    def __init__(
        self, calls: ServiceCalls, forget: Callable[[str], None], *, deadline_s: float
    ) -> None:
        self._changes = ChangeCalls(calls, deadline_s=deadline_s)
        self._forget = forget

    async def create_collection(
        self,
        name: str,
        *,
        shards: int = 1,
        schema: "pa.Schema | None" = None,
        milvus_schema: bytes = b"",
        **options: Unpack[KeptOptions],
    ) -> CollectionDescription:
        """Create a collection with one vchannel for each shard; `_default` is its first partition.

        At most one of `schema`, for Arrow rows, and `milvus_schema`, the bytes of a
        `CollectionSchema`. Without both it takes messages of any bytes. Raises AlreadyExists when a
        collection has the name; UnknownDefinition for an unknown database; InvalidArgument for a
        bad name, number of shards or schema, for the name of an alias, and for an old `timestamp`.
        """
        request = v1.MasterCreateCollectionRequest(
            base=self._changes.base(options),
            db_name=options.get("database", ""),
            collection_name=name,
            # 0 would be the server's default.
            shards=number(shards, "the number of shards", 32) or -1,
            arrow_schema=b"" if schema is None else _encoded(schema),
            milvus_schema=milvus_schema,
            return_existing=True,
            **limits_on_wire(options),
        )
        answer = await self._changes.start(
            "CreateCollection", request, v1.DescribeCollectionResponse, options
        )
        if answer.existed:
            raise AlreadyExists(
                f"collection {name!r} exists already in database {answer.db_name!r}, with id"
                f" {answer.collection_id}; drop it, or choose a new name"
            )
        return _description(answer)

    async def alter_collection(
        self,
        name: str,
        **options: Unpack[KeptOptions],
    ) -> Defined:
        """Change the retention of a collection, as `log.collections.alter` does."""
        request = v1.MasterAlterCollectionRequest(
            base=self._changes.base(options),
            db_name=options.get("database", ""),
            collection_name=name,
            **limits_on_wire(options),
        )
        return await self._changes.change("AlterCollection", request, options)

    async def drop_collection(self, name: str, **options: Unpack[ChangeOptions]) -> Defined:
        """Drop a collection with its partitions, aliases and indexes. Raises UnknownDefinition.

        An alias is no name here.
        """
        request = v1.MasterDropCollectionRequest(
            base=self._changes.base(options),
            db_name=options.get("database", ""),
            collection_name=name,
        )
        done = await self._changes.change("DropCollection", request, options)
        # Whatever has the name next has other vchannels.
        self._forget(name)
        return done

    async def has_collection(self, name: str, *, database: str = "") -> bool:
        """Whether a collection has this name or alias. InvalidArgument for what is no name."""
        request = v1.HasCollectionRequest(db_name=database, collection_name=name)
        return (await self._changes.read("HasCollection", request, v1.BoolResponse)).value

    async def describe_collection(
        self, name: str = "", *, database: str = "", collection_id: int = 0
    ) -> CollectionDescription:
        """The collection of this name, alias or id. Raises UnknownDefinition.

        An id is looked up in every database, and only without a name.
        """
        request = v1.DescribeCollectionRequest(
            db_name=database,
            collection_name=name,
            collection_id=number(collection_id, "collection ID"),
        )
        answer = await self._changes.read(
            "DescribeCollection", request, v1.DescribeCollectionResponse
        )
        return _description(answer)

    async def show_collections(
        self, *, database: str = "", page: int = 1000
    ) -> Mapping[str, CollectionId]:
        """The id of each collection of a database, sorted by name. Raises UnknownDefinition.

        Fetched in pages of 1 to 1,000: one that is created meanwhile may be missing.
        """
        found: dict[str, CollectionId] = {}
        after, more = "", True
        while more:
            request = v1.ShowCollectionsRequest(
                # 0 would be the server's page.
                db_name=database,
                after=after,
                limit=number(page, "the page", 32) or -1,
            )
            answer = await self._changes.read(
                "ShowCollections", request, v1.ShowCollectionsResponse
            )
            names = answer.collection_names
            ids = (CollectionId(it) for it in answer.collection_ids)
            found.update(zip(names, ids, strict=True))
            more = answer.more and bool(names)
            after = names[-1] if names else ""
        return found

    async def count_partitions(self) -> Mapping[CollectionId, int]:
        """How many partitions each collection has, of all databases; a call for each thousand."""
        found: dict[CollectionId, int] = {}
        after, more = 0, True
        while more:
            request = v1.CountPartitionsRequest(after=after)
            answer = await self._changes.read(
                "CountPartitions", request, v1.CountPartitionsResponse
            )
            ids = [CollectionId(it) for it in answer.collection_ids]
            found.update(zip(ids, answer.counts, strict=True))
            more, after = answer.more and bool(ids), ids[-1] if ids else 0
        return found

    async def create_database(self, name: str, **options: Unpack[ChangeOptions]) -> Defined:
        """Add a database. InvalidArgument for a bad name and one that is taken."""
        request = v1.CreateDatabaseRequest(base=self._changes.base(options), db_name=_own(name))
        return await self._changes.change("CreateDatabase", request, options)

    async def drop_database(self, name: str, **options: Unpack[ChangeOptions]) -> Defined:
        """Remove a database. Raises UnknownDefinition.

        InvalidArgument while it has collections, and for the default one.
        """
        request = v1.DropDatabaseRequest(base=self._changes.base(options), db_name=_own(name))
        return await self._changes.change("DropDatabase", request, options)

    async def list_databases(self) -> Mapping[str, int]:
        """The id of each database, sorted by name; the default one has the id 0."""
        request = v1.ListDatabasesRequest()
        answer = await self._changes.read("ListDatabases", request, v1.ListDatabasesResponse)
        return dict(zip(answer.db_names, answer.db_ids, strict=True))


def _own(name: str) -> str:
    if not name:
        raise BadTarget("the name of the database is empty")
    return name


def _encoded(schema: "pa.Schema") -> bytes:
    try:
        return encode_schema(schema)
    except BadArrow as error:
        raise BadTarget(str(error)) from None


def _description(it: v1.DescribeCollectionResponse) -> CollectionDescription:
    rows = it.schema
    return CollectionDescription(
        name=it.collection_name,
        id=CollectionId(it.collection_id),
        database=it.db_name,
        database_id=it.db_id,
        vchannels=tuple(VChannelName(each) for each in it.vchannels),
        default_partition=it.default_partition_name,
        default_partition_id=PartitionId(it.default_partition_id),
        partitions=it.partitions,
        aliases=tuple(it.aliases),
        created_ms=it.created_ms,
        created_tick=TimeTick(it.created_tick),
        schema=None if rows is None else RowSchema(rows.arrow, tuple(rows.widths)),
        milvus_schema=it.milvus_schema,
        retention=Retention(bytes_max=it.retention_bytes, age_ms_max=it.retention_ms),
        compaction=compaction_from(it.compaction),
    )


def _field(it: milvus.FieldSchema) -> Field:
    return Field(
        id=it.field_id,
        name=it.name,
        type=_type(it.data_type),
        params=tuple(sorted((pair.key, pair.value) for pair in it.type_params)),
        nullable=it.nullable,
        primary=it.is_primary_key,
        auto_id=it.auto_id,
        element=_type(it.element_type),
    )


def _type(number: int) -> FieldType:
    """NONE for a type of a newer server."""
    return FieldType(number) if number in set(FieldType) else FieldType.NONE
