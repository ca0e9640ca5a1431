"""The names people use: creating, listing and dropping collections.

It remembers nothing. Next: broker/edge/tidemark/collections_service.py
"""

from collections.abc import Callable
from typing import Any

from broker.client.errors import BadTarget, ChannelNotExist, InvalidArgument, NoSuchCollection
from broker.client.net.connection import Connection
from broker.model.collection import Collection, RowSchema
from broker.model.ids import CollectionId, VChannelName
from schemas.arrow.columns import decode_schema, encode_schema
from schemas.arrow.ipc import BadArrow
from schemas.generated.tidemark import v1

_SERVICE = "/tidemark.v1.Collections/"


class Collections:
    """Each call has its own deadline and raises what `errors` has."""

    def __init__(
        self,
        connection: Connection,
        *,
        deadline_s: float,
        dropped: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`dropped` is told of each name that is no more."""
        self._connection = connection
        self._deadline_s = deadline_s
        self._dropped = dropped

    async def create(self, name: str, *, shards: int = 1, schema: Any = None) -> Collection:
        """Allot an id and one vchannel per shard, on the least loaded pchannels.

        With a `schema` (a `pyarrow.Schema`) it takes Arrow rows of these columns; see
        `append_arrow`. InvalidArgument when the name is taken or cannot be a collection's, and for
        columns that it cannot have.
        """
        request = v1.CreateCollectionRequest(name=name, shards=shards)
        if schema is not None:
            request.arrow_schema = _encoded(schema)
        created = await self._connection.call(
            _SERVICE + "Create", request, v1.Collection, deadline_s=self._deadline_s
        )
        return _collection(created)

    async def add_columns(self, name: str, columns: Any) -> Collection:
        """Add nullable columns (a `pyarrow.Schema` of them) at the end of a collection's schema.

        The rows of before have null in them, and writers of older versions may go on. Columns that
        are there already, just so, are passed over, so it may be called again. NoSuchCollection;
        InvalidArgument for a collection without a schema, a column that may not be null, or one
        that is there with another type.
        """
        request = v1.AddColumnsRequest(name=name, arrow_columns=_encoded(columns))
        try:
            changed = await self._connection.call(
                _SERVICE + "AddColumns", request, v1.Collection, deadline_s=self._deadline_s
            )
        except ChannelNotExist as error:
            raise NoSuchCollection(error.cause, error.code) from None
        return _collection(changed)

    async def schema(self, name: str) -> Any:
        """The newest schema of a collection's rows, a `pyarrow.Schema`; None when it has none."""
        found = (await self.get(name)).schema
        return None if found is None else decode_schema(found.arrow)

    async def get(self, name: str) -> Collection:
        """The collection of this name. Raises NoSuchCollection."""
        try:
            found = await self._connection.call(
                _SERVICE + "Get",
                v1.GetCollectionRequest(name=name),
                v1.Collection,
                deadline_s=self._deadline_s,
            )
        except (ChannelNotExist, InvalidArgument) as error:
            raise NoSuchCollection(error.cause, error.code) from None
        return _collection(found)

    async def list(self) -> list[Collection]:
        """All of them, sorted by name."""
        answer = await self._connection.call(
            _SERVICE + "List",
            v1.ListCollectionsRequest(),
            v1.ListCollectionsResponse,
            deadline_s=self._deadline_s,
        )
        return [_collection(it) for it in answer.collections]

    async def drop(self, name: str) -> None:
        """Forget the name. Raises NoSuchCollection."""
        try:
            await self._connection.call(
                _SERVICE + "Drop",
                v1.DropCollectionRequest(name=name),
                v1.DropCollectionResponse,
                deadline_s=self._deadline_s,
            )
        except (ChannelNotExist, InvalidArgument) as error:
            raise NoSuchCollection(error.cause, error.code) from None
        self._dropped(name)


def _encoded(schema: Any) -> bytes:
    try:
        return encode_schema(schema)
    except BadArrow as error:
        raise BadTarget(str(error)) from None


def _collection(found: v1.Collection) -> Collection:
    schema = found.schema
    return Collection(
        name=found.name,
        id=CollectionId(found.id),
        vchannels=tuple(VChannelName(it) for it in found.vchannels),
        created_ms=found.created_ms,
        schema=None if schema is None else RowSchema(schema.arrow, tuple(schema.widths)),
    )
