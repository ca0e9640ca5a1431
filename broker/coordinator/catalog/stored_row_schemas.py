"""What nodes in any process need to know of collections, read from the metadata store."""

from collections.abc import Awaitable, Mapping
from typing import TypeVar

from broker.coordinator.catalog.collection_records import CollectionRecords
from broker.coordinator.catalog.compacted_collections import compactions_in
from broker.core.naming import collection_id_of
from broker.model.collection import Collection, RowSchema
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId, TimeTick
from broker.model.retention.compaction import Compaction
from broker.ports.meta import MetaError, MetaStore
from broker.ports.row_schemas import CatalogVersion, NoShard, Shard

T = TypeVar("T")


class StoredRowSchemas:
    """RowSchemas (`broker/ports/row_schemas.py`): a few reads each, however many collections."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._records = CollectionRecords(store)
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
        found = await _read(self._records.by_id(collection))
        return None if found is None else found.schema

    async def name_of(self, collection: CollectionId) -> str | None:
        """See RowSchemas."""
        return await _read(self._records.name_of(collection))

    async def found(self, collection: CollectionId) -> Collection | None:
        """See RowSchemas."""
        return await _read(self._records.by_id(collection))

    async def version(self) -> CatalogVersion:
        """See RowSchemas."""
        loads = await _read(self._records.loads())
        return CatalogVersion(loads.revision, loads.drops)

    async def shard(self, vchannel: str) -> Shard | NoShard:
        """See RowSchemas."""
        id = collection_id_of(vchannel)
        # First, because producers wait for this answer no longer than for a few reads.
        if id is not None and await _read(self._records.is_recorded_as_gone(id)):
            return NoShard.DROPPED
        found = await _read(self._records.by_vchannel(vchannel))
        if found is not None:
            return Shard(found.name, found.schema is not None, found.database)
        if id is not None and await _read(self._records.was_dropped(id)):
            return NoShard.DROPPED
        return NoShard.OTHER

    async def compactions(self) -> Mapping[CollectionId, Compaction]:
        """See RowSchemas."""
        return await _read(compactions_in(self._store))

    async def dropped_at(self, vchannel: str) -> TimeTick | None:
        """See RowSchemas."""
        return await _read(self._records.dropped_at(vchannel))


async def _read(call: Awaitable[T]) -> T:
    try:
        return await call
    except MetaError as error:
        raise Refused(StreamingCode.INNER, str(error)) from error
