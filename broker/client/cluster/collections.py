"""Creates, finds, lists and drops collections: names for sets of vchannels."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.client.cluster.look_up import NameLookup
from broker.client.cluster.service import ServiceCalls
from broker.client.cluster.targets import Targets
from broker.client.errors import (
    AlreadyExists,
    BadTarget,
    ChannelNotExist,
    InvalidArgument,
    NoSuchCollection,
)
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.model.collection import Collection, RowSchema
from broker.model.ids import CollectionId, VChannelName
from schemas.arrow.columns import (
    Misfit,
    decode_schema,
    encode_schema,
    fitting_width,
    not_null_differences,
)
from schemas.arrow.ipc import BadArrow
from schemas.generated.tidemark import v1

if TYPE_CHECKING:
    import pyarrow as pa


class Collections:
    """`log.collections`. Every call has a deadline and raises what `broker.client.errors` has."""

    def __init__(self, connection: Connection, owners: Owners, *, deadline_s: float) -> None:
        self._calls = ServiceCalls(connection, "tidemark.v1.Collections", deadline_s=deadline_s)
        lookup = NameLookup(self._calls, self.get, owners, deadline_s=deadline_s)
        self.targets = Targets(lookup.shards, connection.lifetime, deadline_s=deadline_s)
        """Resolves names; knows which collections this client has dropped."""

    async def create(
        self,
        name: str,
        *,
        shards: int = 1,
        schema: "pa.Schema | None" = None,
        exist_ok: bool = False,
    ) -> Collection:
        """Create a collection with one vchannel for each shard, on the least loaded pchannels.

        With a `schema` the collection takes Arrow rows of these columns: see `Client.append_arrow`.
        Raises AlreadyExists when the name is taken; with `exist_ok` only when that collection has
        another number of shards or other columns, which the error names. Columns of an earlier
        version of its schema are no difference. Raises InvalidArgument for a name that is not
        allowed and for column types that a collection cannot have; Unrecoverable when the broker
        has no pyarrow.
        """
        request = v1.CreateCollectionRequest(name=name, shards=shards, return_existing=True)
        if schema is not None:
            request.arrow_schema = _encoded(schema)
        answer = await self._calls.ask("Create", request, v1.Collection)
        found = _collection(answer)
        if not answer.existed:
            return found
        if not exist_ok:
            raise AlreadyExists(
                f"collection {name!r} exists already; drop it, choose a new name, or accept one of"
                " the same definition (exist_ok, --if-not-exists)"
            )
        if differences := _differences(found, shards, schema):
            raise AlreadyExists(
                f"collection {name!r} exists already, and is another: {'; '.join(differences)}"
            )
        return found

    async def add_columns(self, name: str, columns: "pa.Schema") -> Collection:
        """Add nullable columns at the end of a collection's schema: its next version.

        Older rows have null in these columns, and writers of older versions may continue. Columns
        that the collection has already, with the same type, are skipped, so the call may be
        repeated. Raises NoSuchCollection; InvalidArgument for a collection without a schema, for
        a column that is not nullable, and for one that exists with another type.
        """
        request = v1.AddColumnsRequest(name=name, arrow_columns=_encoded(columns))
        try:
            changed = await self._calls.ask("AddColumns", request, v1.Collection)
        except ChannelNotExist as error:
            raise NoSuchCollection(error.cause, error.code) from None
        return _collection(changed)

    async def schema(self, name: str) -> "pa.Schema | None":
        """The newest schema of a collection's rows; None for a collection of messages."""
        found = (await self.get(name)).schema
        return None if found is None else decode_schema(found.arrow)

    async def get(self, name: str) -> Collection:
        """The collection of this name. Raises NoSuchCollection."""
        try:
            found = await self._calls.ask("Get", v1.GetCollectionRequest(name=name), v1.Collection)
        except (ChannelNotExist, InvalidArgument) as error:
            raise NoSuchCollection(error.cause, error.code) from None
        return _collection(found)

    async def list(self) -> list[Collection]:
        """All collections, sorted by name."""
        request = v1.ListCollectionsRequest()
        answer = await self._calls.ask("List", request, v1.ListCollectionsResponse)
        return [_collection(it) for it in answer.collections]

    async def resolve(self, names: Iterable[str]) -> dict[str, tuple[VChannelName, ...]]:
        """Each name with its vchannels in shard order; a channel is its own only vchannel.

        Raises NoSuchCollection.
        """
        return {name: (await self.targets.resolve(name)).vchannels for name in names}

    async def drop(self, name: str) -> None:
        """Forget the collection. Raises NoSuchCollection."""
        try:
            await self._calls.ask(
                "Drop", v1.DropCollectionRequest(name=name), v1.DropCollectionResponse
            )
        except (ChannelNotExist, InvalidArgument) as error:
            raise NoSuchCollection(error.cause, error.code) from None
        # A collection made anew under this name has other vchannels.
        self.targets.forget(name)


def _encoded(schema: "pa.Schema") -> bytes:
    try:
        return encode_schema(schema)
    except BadArrow as error:
        raise BadTarget(str(error)) from None


def _differences(found: Collection, shards: int, schema: "pa.Schema | None") -> list[str]:
    """How a collection differs from what was to be created."""
    differences: list[str] = []
    if len(found.vchannels) != shards:
        differences.append(f"it has {len(found.vchannels)} shards, not {shards}")
    if found.schema is None and schema is not None:
        differences.append("it has no schema")
    if found.schema is not None and schema is None:
        names = decode_schema(found.schema.arrow).names
        differences.append(f"it has a schema, with columns {', '.join(names)}")
    if found.schema is not None and schema is not None:
        known = decode_schema(found.schema.arrow)
        try:
            fitting_width(known, found.schema.widths, schema)
        except Misfit as error:
            differences.append(str(error))
        differences += not_null_differences(known, schema)
    return differences


def _collection(found: v1.Collection) -> Collection:
    schema = found.schema
    return Collection(
        name=found.name,
        id=CollectionId(found.id),
        vchannels=tuple(VChannelName(it) for it in found.vchannels),
        created_ms=found.created_ms,
        schema=None if schema is None else RowSchema(schema.arrow, tuple(schema.widths)),
    )
