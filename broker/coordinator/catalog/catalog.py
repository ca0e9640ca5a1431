"""Collections: names, each with an id and one vchannel per shard.

A vchannel needs no creation in a log: it exists with the first message that names it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import assert_never

from actors import Actor, Context, Envelope
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
from broker.coordinator.records import (
    COLLECTION_ID_KEY,
    COLLECTION_PREFIX,
    FIRST_COLLECTION_ID,
    collection_key,
    decode_collection,
    decode_number,
    encode_collection,
    encode_number,
)
from broker.core.cluster.shard_placement import SHARDS_MAX, place_shards
from broker.core.name_lookup import FoundName, found_name
from broker.core.naming import (
    COLLECTION_NAME_LENGTH_MAX,
    collection_name_refusal,
    pchannel_of,
    vchannel_name,
)
from broker.model.collection import Collection
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.ids import CollectionId, PChannelName, VChannelName
from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import Conflict, MetaError, MetaStore
from broker.ports.meta_writes import all_entries


class Catalog(Actor[CatalogMessage]):
    """The collections of the cluster. A change is durable when it is answered.

    Nothing is cached: the store answers in a fraction of a millisecond, collections are not looked
    up per message, and a cache could be stale after a write of another process.
    """

    def __init__(self, store: MetaStore, pchannels: Sequence[PChannelName]) -> None:
        self._store = store
        self._pchannels = tuple(pchannels)

    async def started(self, context: Context[CatalogMessage]) -> None:
        self._clock = context.clock

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
                collection, _ = await self._get(name)
                return collection
            case FindName(name):
                return found_name(name, await self._list(), self._pchannels)
            case ListCollections():
                return await self._list()
            case DropCollection(name):
                return await self._drop(name)
            case ChangeSchema():
                return await self._change(message)
            case _:
                assert_never(message)

    async def _create(self, wanted: CreateCollection) -> Collection:
        name, shards = wanted.name, wanted.shards
        if refusal := collection_name_refusal(name):
            raise Refused(refusal.code, refusal.cause)
        if not 1 <= shards <= SHARDS_MAX:
            raise invalid_argument(
                f"collection '{name}': the number of shards must be 1 to {SHARDS_MAX}, not {shards}"
            )

        async def attempt() -> Collection:
            existing = await self._list()
            for each in existing:
                if each.name == name:
                    raise NameTaken(each)
            return await self._put(wanted, existing)

        return await retry_conflicts(f"collection '{name}'", attempt)

    async def _put(self, wanted: CreateCollection, existing: Iterable[Collection]) -> Collection:
        """Write collection and counter in one transaction, so that no id is given out twice."""
        counter = await self._store.get(COLLECTION_ID_KEY)
        # The counter, not the largest id: the id of a dropped collection is not used again.
        number = FIRST_COLLECTION_ID
        if counter is not None:
            number = decode_number(COLLECTION_ID_KEY, counter.value)
        vchannels = self._placed(CollectionId(number), wanted.shards, existing)
        collection = Collection(
            wanted.name, CollectionId(number), vchannels, self._clock.wall_ms(), wanted.schema
        )
        key = collection_key(wanted.name)
        # The counter is also what makes two creations conflict: the second is placed anew, by loads
        # that count the first.
        await self._store.write(
            {key: encode_collection(collection), COLLECTION_ID_KEY: encode_number(number + 1)},
            expect={key: 0, COLLECTION_ID_KEY: counter.revision if counter else 0},
        )
        return collection

    def _placed(
        self, number: CollectionId, shards: int, existing: Iterable[Collection]
    ) -> tuple[VChannelName, ...]:
        uses = Counter(
            pchannel_of(vchannel) for collection in existing for vchannel in collection.vchannels
        )
        placed = place_shards({pchannel: uses[pchannel] for pchannel in self._pchannels}, shards)
        return tuple(
            vchannel_name(pchannel, number, shard) for shard, pchannel in enumerate(placed)
        )

    async def _change(self, wanted: ChangeSchema) -> Collection | None:
        collection, revision = await self._get(wanted.name)
        if collection.schema != wanted.before:
            return None
        changed = replace(collection, schema=wanted.after)
        key = collection_key(wanted.name)
        try:
            await self._store.write({key: encode_collection(changed)}, expect={key: revision})
        except Conflict:
            return None
        return changed

    async def _drop(self, name: str) -> Collection:
        async def attempt() -> Collection:
            collection, revision = await self._get(name)
            key = collection_key(name)
            await self._store.write({}, deletes=[key], expect={key: revision})
            return collection

        return await retry_conflicts(f"collection '{name}'", attempt)

    async def _get(self, name: str) -> tuple[Collection, int]:
        """The collection and its revision."""
        key = collection_key(name)
        entry = await self._store.get(key)
        if entry is None:
            cause = f"there is no collection {name[:COLLECTION_NAME_LENGTH_MAX]!r}"
            raise Refused(StreamingCode.CHANNEL_NOT_EXIST, cause)
        return decode_collection(key, entry.value), entry.revision

    async def _list(self) -> tuple[Collection, ...]:
        found = all_entries(self._store, COLLECTION_PREFIX)
        return tuple([decode_collection(key, entry.value) async for key, entry in found])
