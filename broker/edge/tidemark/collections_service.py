"""tidemark.v1.Collections: named sets of vchannels, and the checks of their schemas."""

from collections.abc import Mapping

from grpclib.const import Handler

from broker.coordinator.catalog.messages import (
    ChangeSchema,
    CreateCollection,
    DropCollection,
    FindName,
    GetCollection,
    NameTaken,
    all_collections,
)
from broker.core.name_lookup import NameKind
from broker.edge.rpc.arrow_library import require_arrow
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.model.collection import Collection, RowSchema
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.ports.row_schemas import RowSchemas
from schemas.arrow.columns import added, check_columns, decode_schema, encode_schema
from schemas.arrow.ipc import BadArrow
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.Collections/"
RACES_MAX = 8
"""Attempts to add columns: each fails when another caller changed the schema meanwhile."""
VERSIONS_MAX = 1024
_KINDS = {
    NameKind.COLLECTION: v1.NameKind.COLLECTION,
    NameKind.VCHANNEL: v1.NameKind.VCHANNEL,
    NameKind.PCHANNEL: v1.NameKind.PCHANNEL,
    NameKind.CONTROL: v1.NameKind.CONTROL,
    NameKind.OTHER_VCHANNEL: v1.NameKind.OTHER_VCHANNEL,
}


class CollectionsService:
    """Create, Get, List, Drop, AddColumns, Find."""

    def __init__(self, middleware: Middleware, catalog: Proxy, schemas: RowSchemas) -> None:
        self._middleware = middleware
        self._catalog = catalog
        self._schemas = schemas

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Create": middleware.unary(v1.CreateCollectionRequest, self.create),
            SERVICE + "Get": middleware.unary(v1.GetCollectionRequest, self.get),
            SERVICE + "List": middleware.unary(v1.ListCollectionsRequest, self.list),
            SERVICE + "Drop": middleware.unary(v1.DropCollectionRequest, self.drop),
            SERVICE + "AddColumns": middleware.unary(v1.AddColumnsRequest, self.add_columns),
            SERVICE + "Find": middleware.unary(v1.FindRequest, self.find),
        }

    async def create(self, request: v1.CreateCollectionRequest) -> v1.Collection:
        """Create one. INVALID_ARGUMENT: bad name, shards or schema, or the name is taken."""
        schema: RowSchema | None = None
        if request.arrow_schema:
            await require_arrow()
            schema = _first_version(request.arrow_schema)
        creation = CreateCollection(request.name, request.shards, schema)
        try:
            created = await self._catalog.ask(creation)
        except NameTaken as taken:
            if not request.return_existing:
                raise
            existing = _encoded(taken.collection)
            existing.existed = True
            return existing
        self._schemas.note_change()
        return _encoded(created)

    async def get(self, request: v1.GetCollectionRequest) -> v1.Collection:
        """One collection. CHANNEL_NOT_EXIST when there is none."""
        return _encoded(await self._catalog.ask(GetCollection(request.name)))

    async def find(self, request: v1.FindRequest) -> v1.FindResponse:
        """What a name stands for. CHANNEL_NOT_EXIST for a name of nothing."""
        found = await self._catalog.ask(FindName(request.name))
        answer = v1.FindResponse(kind=_KINDS[found.kind])
        if found.collection is not None:
            answer.collection = _encoded(found.collection)
        return answer

    async def list(self, _: v1.ListCollectionsRequest) -> v1.ListCollectionsResponse:
        """All collections, sorted by name."""
        found = await all_collections(self._catalog.ask)
        return v1.ListCollectionsResponse(collections=[_encoded(entry) for entry in found])

    async def drop(self, request: v1.DropCollectionRequest) -> v1.DropCollectionResponse:
        """Drop one. CHANNEL_NOT_EXIST when there is none."""
        await self._catalog.ask(DropCollection(request.name))
        # Before the answer: appends of this process to its vchannels are refused from here on.
        self._schemas.note_change()
        return v1.DropCollectionResponse()

    async def add_columns(self, request: v1.AddColumnsRequest) -> v1.Collection:
        """Add columns. CHANNEL_NOT_EXIST: no such collection; INVALID_ARGUMENT: bad columns."""
        await require_arrow()
        for _ in range(RACES_MAX):
            collection = await self._catalog.ask(GetCollection(request.name))
            before = collection.schema
            if before is None:
                raise invalid_argument(
                    f"collection '{request.name}' was created without a schema; it has no columns"
                )
            after = _next_version(before, request.arrow_columns)
            # A repeat of an AddColumns whose answer was lost succeeds.
            if after == before:
                return _encoded(collection)
            # Compare-and-set on the schema that was read; None: another caller was first.
            changed = await self._catalog.ask(ChangeSchema(request.name, before, after))
            if changed is not None:
                return _encoded(changed)
        cause = f"the schema of collection '{request.name}' keeps changing; try again"
        raise Refused(StreamingCode.RESOURCE_ACQUIRED, cause)


def _first_version(message: bytes) -> RowSchema:
    try:
        schema = decode_schema(message)
        check_columns(schema)
        return RowSchema(encode_schema(schema), (len(schema),))
    except BadArrow as error:
        raise invalid_argument(f"bad schema: {error}") from error


def _next_version(before: RowSchema, columns: bytes) -> RowSchema:
    """The schema with the columns added; the same one when it has them all."""
    try:
        old = decode_schema(before.arrow)
        new = added(old, decode_schema(columns))
        if len(new) == len(old):
            return before
        if before.version == VERSIONS_MAX:
            raise invalid_argument(
                f"the schema has {VERSIONS_MAX} versions, the limit; create a new collection"
            )
        return RowSchema(encode_schema(new), (*before.widths, len(new)))
    except BadArrow as error:
        raise invalid_argument(f"bad columns: {error}") from error


def _encoded(collection: Collection) -> v1.Collection:
    found = v1.Collection(
        name=collection.name,
        id=collection.id,
        vchannels=list(collection.vchannels),
        created_ms=collection.created_ms,
    )
    if collection.schema is not None:
        schema = collection.schema
        found.schema = v1.RowSchema(arrow=schema.arrow, widths=list(schema.widths))
    return found
