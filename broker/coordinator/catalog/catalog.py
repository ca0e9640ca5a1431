"""Finds collections by their names: each has an id and one vchannel per shard.

The master changes them (`broker/master`).
"""

from collections.abc import Sequence
from typing import assert_never

from actors import Actor, Context, Envelope
from broker.coordinator.catalog.collection_records import (
    CollectionRecords,
    RecordedCollection,
    ensure_indexes,
)
from broker.coordinator.catalog.messages import (
    CatalogMessage,
    FindName,
    GetCollection,
    ListCollections,
)
from broker.core.name_lookup import FoundName, found_name
from broker.core.naming import COLLECTION_NAME_LENGTH_MAX
from broker.model.collection import Collection
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName
from broker.ports.meta import MetaError, MetaStore


class Catalog(Actor[CatalogMessage]):
    """The collections of the cluster.

    Nothing is cached: the store answers in a fraction of a millisecond, collections are not looked
    up per message, and a cache could be stale after a write of another process. The cost of a
    request does not grow with the number of collections.
    """

    def __init__(self, store: MetaStore, pchannels: Sequence[PChannelName]) -> None:
        self._store = store
        self._records = CollectionRecords(store)
        self._pchannels = tuple(pchannels)

    async def started(self, context: Context[CatalogMessage]) -> None:
        # Most often two reads: the process has done it before it started this actor.
        await ensure_indexes(self._store)

    async def receive(self, batch: Sequence[Envelope[CatalogMessage]]) -> None:
        for envelope in batch:
            try:
                envelope.reply(await self._answer(envelope.message))
            except Refused as error:
                envelope.fail(error)
            except MetaError as error:
                envelope.fail(Refused(StreamingCode.INNER, str(error)))

    async def _answer(
        self, message: CatalogMessage
    ) -> Collection | FoundName | tuple[Collection, ...]:
        match message:
            case GetCollection(name, database):
                return (await self._get(name, database)).collection
            case FindName(name):
                return await self._find(name)
            case ListCollections(after, limit):
                return tuple(await self._records.page_of_all(after, limit))
            case _:
                assert_never(message)

    async def _find(self, name: str) -> FoundName:
        named = await self._records.by_name(name)
        if named is not None:
            return found_name(name, [named.collection], self._pchannels)
        owner = await self._records.by_vchannel(name)
        return found_name(name, [] if owner is None else [owner], self._pchannels)

    async def _get(self, name: str, database: str) -> RecordedCollection:
        found = await self._records.by_name(name, database)
        if found is None:
            cause = f"there is no collection {name[:COLLECTION_NAME_LENGTH_MAX]!r}"
            cause += f" in database {database!r}" if database else ""
            raise Refused(StreamingCode.CHANNEL_NOT_EXIST, cause)
        return found
