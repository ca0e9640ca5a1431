"""The row schemas of collections, read from the metadata store by nodes in any process."""

from broker.coordinator.records import COLLECTION_PREFIX, decode_collection
from broker.model.collection import RowSchema
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import CollectionId
from broker.ports.meta import MetaError, MetaStore


class StoredRowSchemas:
    """RowSchemas (`broker/ports/row_schemas.py`).

    Records are keyed by name, so one lookup reads all collections; nobody looks up per batch.
    """

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def newest(self, collection: CollectionId) -> RowSchema | None:
        """See RowSchemas."""
        try:
            for key, entry in await self._store.list(COLLECTION_PREFIX):
                found = decode_collection(key, entry.value)
                if found.id == collection:
                    return found.schema
        except MetaError as error:
            raise Refused(StreamingCode.INNER, str(error)) from error
        return None
