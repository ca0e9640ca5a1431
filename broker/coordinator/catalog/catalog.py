"""Collections: names, each with an id and one vchannel per shard.

A vchannel needs no creation in a log: it exists with the first message that names it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from actors import Actor, Context, Envelope
from broker.coordinator.catalog.collection_records import (
    CollectionRecords,
    Loads,
    RecordedCollection,
    ensure_indexes,
)
from broker.coordinator.catalog.messages import (
    CatalogMessage,
    ChangeSchema,
    CreateCollection,
    DropCollection,
    FindName,
    GetCollection,
    ListCollections,
    NameTaken,
)
from broker.core.cluster.shard_placement import SHARDS_MAX, place_shards
from broker.core.name_lookup import FoundName, found_name
from broker.core.naming import (
    COLLECTION_NAME_LENGTH_MAX,
    collection_name_refusal,
    vchannel_name,
)
from broker.model.collection import Collection
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import CollectionId, PChannelName, VChannelName
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import Conflict, MetaError, MetaStore


class Catalog(Actor[CatalogMessage]):
    """The collections of the cluster. A change is durable when it is answered.

    Nothing is cached: the store answers in a fraction of a millisecond, collections are not looked
    up per message, and a cache could be stale after a write of another process. The cost of a
    request does not grow with the number of collections.
    """

    def __init__(self, store: MetaStore, pchannels: Sequence[PChannelName]) -> None:
        self._store = store
        self._records = CollectionRecords(store)
        self._pchannels = tuple(pchannels)

    async def started(self, context: Context[CatalogMessage]) -> None:
        self._clock = context.clock
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
    ) -> Collection | FoundName | tuple[Collection, ...] | None:
        match message:
            case CreateCollection():
                return await self._create(message)
            case GetCollection(name):
                return (await self._get(name)).collection
            case FindName(name):
                return await self._find(name)
            case ListCollections(after, limit):
                return tuple(await self._records.page(after, limit))
            case DropCollection(name):
                return await self._drop(name)
            case ChangeSchema():
                return await self._change(message)
            case _:
                assert_never(message)

    async def _find(self, name: str) -> FoundName:
        named = await self._records.by_name(name)
        if named is not None:
            return found_name(name, [named.collection], self._pchannels)
        owner = await self._records.by_vchannel(name)
        return found_name(name, [] if owner is None else [owner], self._pchannels)

    async def _create(self, wanted: CreateCollection) -> Collection:
        name, shards = wanted.name, wanted.shards
        if refusal := collection_name_refusal(name):
            raise Refused(refusal.code, refusal.cause)
        if not 1 <= shards <= SHARDS_MAX:
            raise invalid_argument(
                f"collection '{name}': the number of shards must be 1 to {SHARDS_MAX}, not {shards}"
            )

        async def attempt() -> Collection:
            existing = await self._records.by_name(name)
            if existing is not None:
                raise NameTaken(existing.collection)
            counter, loads = await self._records.next_id(), await self._records.loads()
            vchannels = self._placed(counter.id, shards, loads)
            created = Collection(name, counter.id, vchannels, self._clock.wall_ms(), wanted.schema)
            await self._records.create(created, counter, loads)
            return created

        return await retry_conflicts(f"collection '{name}'", attempt)

    def _placed(self, id: CollectionId, shards: int, loads: Loads) -> tuple[VChannelName, ...]:
        uses = loads.vchannels
        placed = place_shards({name: uses.get(name, 0) for name in self._pchannels}, shards)
        return tuple(vchannel_name(pchannel, id, shard) for shard, pchannel in enumerate(placed))

    async def _change(self, wanted: ChangeSchema) -> Collection | None:
        before = await self._get(wanted.name)
        if before.collection.schema != wanted.before:
            return None
        changed = replace(before.collection, schema=wanted.after)
        try:
            await self._records.change(before, changed)
        except Conflict:
            return None
        return changed

    async def _drop(self, name: str) -> Collection:
        async def attempt() -> Collection:
            loads, before = await self._records.loads(), await self._get(name)
            await self._records.drop(before, loads)
            return before.collection

        return await retry_conflicts(f"collection '{name}'", attempt)

    async def _get(self, name: str) -> RecordedCollection:
        found = await self._records.by_name(name)
        if found is None:
            cause = f"there is no collection {name[:COLLECTION_NAME_LENGTH_MAX]!r}"
            raise Refused(StreamingCode.CHANNEL_NOT_EXIST, cause)
        return found
