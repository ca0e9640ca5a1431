"""What nodes in any process need to know of collections, read from the metadata store."""

from broker.coordinator.records import (
    COLLECTION_ID_KEY,
    COLLECTION_PREFIX,
    FIRST_COLLECTION_ID,
    decode_collection,
    decode_number,
)
from broker.model.collection import Collection, RowSchema
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId
from broker.ports.meta import MetaError, MetaStore
from broker.ports.meta_writes import all_entries
from broker.ports.row_schemas import CollectionShards, Shard


class StoredRowSchemas:
    """RowSchemas (`broker/ports/row_schemas.py`).

    Records are keyed by name, so one lookup reads all collections; nobody looks up per batch.
    """

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._decoded: dict[str, tuple[int, Collection]] = {}
        self._changes = 0

    @property
    def changes(self) -> int:
        """See RowSchemas."""
        return self._changes

    def note_change(self) -> None:
        """See RowSchemas."""
        self._changes += 1

    async def newest(self, collection: CollectionId) -> RowSchema | None:
        """See RowSchemas."""
        try:
            for found in await self._collections():
                if found.id == collection:
                    return found.schema
        except MetaError as error:
            raise Refused(StreamingCode.INNER, str(error)) from error
        return None

    async def shards(self) -> CollectionShards:
        """See RowSchemas."""
        try:
            # Before the collections: one that is created in between must not look like dropped.
            counter = await self._store.get(COLLECTION_ID_KEY)
            number = FIRST_COLLECTION_ID
            if counter is not None:
                number = decode_number(COLLECTION_ID_KEY, counter.value)
            found = await self._collections()
        except MetaError as error:
            raise Refused(StreamingCode.INNER, str(error)) from error
        shards = {
            str(vchannel): Shard(each.name, each.schema is not None)
            for each in found
            for vchannel in each.vchannels
        }
        live = frozenset([each.id for each in found])
        return CollectionShards(shards, live, range(FIRST_COLLECTION_ID, number))

    async def _collections(self) -> list[Collection]:
        """All collections; only those that changed since the last call are decoded."""
        before, after = self._decoded, {}
        async for key, entry in all_entries(self._store, COLLECTION_PREFIX):
            known = before.get(key)
            if known is None or known[0] != entry.revision:
                known = entry.revision, decode_collection(key, entry.value)
            after[key] = known
        self._decoded = after
        return [collection for _, collection in after.values()]
