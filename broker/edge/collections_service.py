"""tidemark.v1.Collections: the names people use for sets of vchannels.

Owns the translation only. Next: broker/coordinator/catalog.py
"""

from collections.abc import Mapping

from grpclib.const import Handler

from broker.coordinator.messages import (
    CreateCollection,
    DropCollection,
    GetCollection,
    ListCollections,
)
from broker.edge.gate import Gate
from broker.edge.reach import Reach
from broker.model.collection import Collection
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.Collections/"


class CollectionsService:
    """Create, Get, List, Drop."""

    def __init__(self, gate: Gate, catalog: Reach) -> None:
        self._gate = gate
        self._catalog = catalog

    def __mapping__(self) -> Mapping[str, Handler]:
        gate = self._gate
        return {
            SERVICE + "Create": gate.unary(v1.CreateCollectionRequest, self.create),
            SERVICE + "Get": gate.unary(v1.GetCollectionRequest, self.get),
            SERVICE + "List": gate.unary(v1.ListCollectionsRequest, self.list),
            SERVICE + "Drop": gate.unary(v1.DropCollectionRequest, self.drop),
        }

    async def create(self, request: v1.CreateCollectionRequest) -> v1.Collection:
        """INVALID_ARGUMENT: bad name, bad number of shards, name taken."""
        return _encoded(await self._catalog.ask(CreateCollection(request.name, request.shards)))

    async def get(self, request: v1.GetCollectionRequest) -> v1.Collection:
        """CHANNEL_NOT_EXIST when there is none."""
        return _encoded(await self._catalog.ask(GetCollection(request.name)))

    async def list(self, _: v1.ListCollectionsRequest) -> v1.ListCollectionsResponse:
        """All, by name."""
        found = await self._catalog.ask(ListCollections())
        return v1.ListCollectionsResponse(collections=[_encoded(entry) for entry in found])

    async def drop(self, request: v1.DropCollectionRequest) -> v1.DropCollectionResponse:
        """CHANNEL_NOT_EXIST when there is none."""
        await self._catalog.ask(DropCollection(request.name))
        return v1.DropCollectionResponse()


def _encoded(collection: Collection) -> v1.Collection:
    return v1.Collection(
        name=collection.name,
        id=collection.id,
        vchannels=list(collection.vchannels),
        created_ms=collection.created_ms,
    )
