"""tidemark.v1.Collections: named sets of vchannels, and the checks of their schemas."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from grpclib.const import Handler

from broker.coordinator.catalog.messages import FindName, GetCollection, NameTaken
from broker.core.master.table_names import checked_database
from broker.core.name_lookup import NameKind
from broker.core.space.retention_limits import changed_retention
from broker.edge.master.cleanup_asked import (
    altered_compaction,
    compaction_asked,
    new_compaction,
    wire_compaction,
)
from broker.edge.master.ddl_calls import DdlCalls
from broker.edge.master.definitions_service import created
from broker.edge.master.row_definitions import defined_rows, extended_rows, fields_of, wire_schema
from broker.edge.master.table_service import checked_after, checked_limit
from broker.edge.master.visible_pages import visible_page
from broker.edge.rpc.arrow_library import require_arrow
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.master.ddl.collection_plans import OutdatedSchema
from broker.model.collection import Collection
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.master.ddl import (
    ChangeCompaction,
    ChangeRetention,
    ChangeSchema,
    CreateCollection,
    DropCollection,
)
from broker.model.retention.policy import Retention
from broker.ports.master.table_reads import MetaTableReads
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.Collections/"
PAGE_BYTES = 1024 * 1024
RACES_MAX = 8
"""Attempts to add columns: each fails when another caller changed the schema meanwhile."""
_KINDS = {
    NameKind.COLLECTION: v1.NameKind.COLLECTION,
    NameKind.VCHANNEL: v1.NameKind.VCHANNEL,
    NameKind.PCHANNEL: v1.NameKind.PCHANNEL,
    NameKind.CONTROL: v1.NameKind.CONTROL,
    NameKind.OTHER_VCHANNEL: v1.NameKind.OTHER_VCHANNEL,
}


class CollectionsService:
    """Create, Get, List, Drop, AddColumns, Alter, Find."""

    def __init__(
        self, middleware: Middleware, catalog: Proxy, calls: DdlCalls, table: MetaTableReads
    ) -> None:
        self._middleware = middleware
        self._catalog = catalog
        self._calls = calls
        self._table = table

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Create": middleware.unary(
                v1.CreateCollectionRequest, self.create, interruptible=True
            ),
            SERVICE + "Get": middleware.unary(v1.GetCollectionRequest, self.get),
            SERVICE + "List": middleware.unary(v1.ListCollectionsRequest, self.list),
            SERVICE + "Drop": middleware.unary(
                v1.DropCollectionRequest, self.drop, interruptible=True
            ),
            SERVICE + "AddColumns": middleware.unary(
                v1.AddColumnsRequest, self.add_columns, interruptible=True
            ),
            SERVICE + "Alter": middleware.unary(
                v1.AlterCollectionRequest, self.alter, interruptible=True
            ),
            SERVICE + "Find": middleware.unary(v1.FindRequest, self.find),
        }

    async def create(self, request: v1.CreateCollectionRequest) -> v1.Collection:
        """Create one. INVALID_ARGUMENT: bad name, shards or schema, or the name is taken."""
        rows, table = None, None
        if request.arrow_schema:
            rows, table = await defined_rows(request.name, request.arrow_schema)
        database = checked_database(request.database)
        retention = changed_retention(
            request.name, Retention(), request.retention_ms, request.retention_bytes
        )
        kept = retention, new_compaction(request)
        ddl = CreateCollection(request.name, request.shards, rows, table, database, *kept)
        try:
            return _encoded(created(ddl, await self._calls.change(ddl)))
        except NameTaken as taken:
            if not request.return_existing:
                raise
            existing = _encoded(taken.collection)
            existing.existed = True
            return existing

    async def get(self, request: v1.GetCollectionRequest) -> v1.Collection:
        """One collection. CHANNEL_NOT_EXIST when there is none."""
        return _encoded(await self._get(request.name, request.database))

    async def find(self, request: v1.FindRequest) -> v1.FindResponse:
        """What a name stands for. CHANNEL_NOT_EXIST for a name of nothing."""
        found = await self._catalog.ask(FindName(request.name))
        answer = v1.FindResponse(kind=_KINDS[found.kind])
        if found.collection is not None:
            answer.collection = _encoded(found.collection)
        return answer

    async def list(self, request: v1.ListCollectionsRequest) -> v1.ListCollectionsResponse:
        """A page of the collections of a database that the caller sees; see `visible_page`."""
        limit = checked_limit(request.limit)
        database, after = checked_database(request.database), checked_after(request.after)
        found = await visible_page(self._table, database, after, limit)
        page = [_encoded(entry) for entry in found[: _count_within(found, PAGE_BYTES)]]
        more = len(page) < len(found) or len(found) == limit
        if more and not request.limit and await self._any_after(database, page[-1].name):
            raise invalid_argument(
                f"there are more collections than one answer holds ({len(page)}); ask for pages,"
                " with a limit, or use a client of this release"
            )
        return v1.ListCollectionsResponse(collections=page, more=more)

    async def drop(self, request: v1.DropCollectionRequest) -> v1.DropCollectionResponse:
        """Drop one. CHANNEL_NOT_EXIST when there is none."""
        database = checked_database(request.database)
        await self._calls.change(DropCollection(request.name, database))
        return v1.DropCollectionResponse()

    async def add_columns(self, request: v1.AddColumnsRequest) -> v1.Collection:
        """Add columns. CHANNEL_NOT_EXIST: no such collection; INVALID_ARGUMENT: bad columns."""
        await require_arrow()
        database = checked_database(request.database)
        for _ in range(RACES_MAX):
            collection = await self._get(request.name, database)
            before = collection.schema
            if before is None:
                raise invalid_argument(
                    f"collection '{request.name}' was created without a schema; it has no columns"
                )
            after = extended_rows(before, request.arrow_columns)
            # A repeat of an AddColumns whose answer was lost succeeds.
            if after == before:
                return _encoded(collection)
            table = fields_of(request.name, after)
            try:
                # Refused when it is not the schema that was read: another caller was first.
                change = ChangeSchema(request.name, before, after, table, database)
                await self._calls.change(change)
            except OutdatedSchema:
                continue
            return _encoded(replace(collection, schema=after))
        cause = f"the schema of collection '{request.name}' keeps changing; try again"
        raise Refused(StreamingCode.RESOURCE_ACQUIRED, cause)

    async def alter(self, request: v1.AlterCollectionRequest) -> v1.Collection:
        """Change what it keeps. CHANNEL_NOT_EXIST; INVALID_ARGUMENT: a limit, or none is named.

        Its retention and its compaction are two changes, made one after the other.
        """
        database = checked_database(request.database)
        # Before the change: afterwards a failed read would hide that it took effect.
        found = await self._get(request.name, database)
        compaction = altered_compaction(found, request)
        asked = request.retention_ms, request.retention_bytes
        limits = changed_retention(request.name, found.retention, *asked)
        if asked != (None, None):
            await self._calls.change(ChangeRetention(request.name, *asked, database))
        if not compaction_asked(request).says_nothing:
            await self._calls.change(ChangeCompaction(request.name, compaction, database))
        return _encoded(replace(found, retention=limits, compaction=compaction))

    async def _any_after(self, database: str, name: str) -> bool:
        return bool(await visible_page(self._table, database, name, 1))

    async def _get(self, name: str, database: str) -> Collection:
        return await self._catalog.ask(GetCollection(name, checked_database(database)))


def _count_within(found: Sequence[Collection], size_max: int) -> int:
    """How many of the first collections make a page; one at least, whatever its size."""
    size = 0
    for count, it in enumerate(found):
        size += 0 if it.schema is None else len(it.schema.arrow)
        size += sum(map(len, it.vchannels)) + len(it.name)
        if size > size_max:
            return max(1, count)
    return len(found)


def _encoded(collection: Collection) -> v1.Collection:
    found = v1.Collection(
        name=collection.name,
        id=collection.id,
        vchannels=list(collection.vchannels),
        created_ms=collection.created_ms,
        database=collection.database,
        retention_ms=collection.retention.age_ms_max,
        retention_bytes=collection.retention.bytes_max,
        compaction=wire_compaction(collection.compaction),
    )
    if collection.schema is not None:
        found.schema = wire_schema(collection.schema)
    return found
