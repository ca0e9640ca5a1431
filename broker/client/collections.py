"""The names people use: creating, listing and dropping collections.

It remembers nothing. Next: broker/edge/collections_service.py
"""

from collections.abc import Callable

from broker.client.connection import Connection
from broker.client.errors import ChannelNotExist, InvalidArgument, NoSuchCollection
from broker.model.collection import Collection
from broker.model.ids import CollectionId, VChannelName
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

    async def create(self, name: str, *, shards: int = 1) -> Collection:
        """Allot an id and one vchannel per shard, on the least loaded pchannels.

        InvalidArgument when the name is taken or cannot be a collection's.
        """
        request = v1.CreateCollectionRequest(name=name, shards=shards)
        created = await self._connection.call(
            _SERVICE + "Create", request, v1.Collection, deadline_s=self._deadline_s
        )
        return _collection(created)

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


def _collection(found: v1.Collection) -> Collection:
    return Collection(
        name=found.name,
        id=CollectionId(found.id),
        vchannels=tuple(VChannelName(it) for it in found.vchannels),
        created_ms=found.created_ms,
    )
