"""What nodes in any process need to know of the retention of collections, from the metadata store.

The limits are read from the records of the collections themselves: a name that an earlier release
has left here is of no collection by then, or of one with other limits.
"""

from broker.coordinator.catalog.retained_keys import RETAINED_PREFIX, RETENTIONS_KEY
from broker.coordinator.json_records import decode_fields
from broker.coordinator.records import collection_key, decode_collection
from broker.model.failure import Refused, StreamingCode
from broker.model.retention.policy import Retention
from broker.ports.meta import MetaError, MetaStore, get_many
from broker.ports.meta_writes import SPLIT_KEYS, all_entries
from broker.ports.space.collection_retentions import Retentions


class StoredRetentions:
    """CollectionRetentions (`broker/ports/space/collection_retentions.py`)."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def newer(self, revision: int) -> Retentions | None:
        """See CollectionRetentions."""
        try:
            changed = await self._store.get(RETENTIONS_KEY)
            now = 0 if changed is None else changed.revision
            return None if now == revision else Retentions(now, await self._limits())
        except MetaError as error:
            raise Refused(StreamingCode.INNER, str(error)) from error

    async def _limits(self) -> dict[str, Retention]:
        limits: dict[str, Retention] = {}
        keys: list[str] = []
        async for key, entry in all_entries(self._store, RETAINED_PREFIX, page=SPLIT_KEYS):
            keys.append(decode_fields(key, entry.value, _record_key))
            if len(keys) == SPLIT_KEYS:
                limits |= await self._limits_of(keys)
                keys = []
        return limits | await self._limits_of(keys)

    async def _limits_of(self, keys: list[str]) -> dict[str, Retention]:
        entries = zip(keys, await get_many(self._store, keys), strict=True)
        found = [decode_collection(key, it.value) for key, it in entries if it is not None]
        return {
            vchannel: it.retention
            for it in found
            if not it.retention.keeps_all
            for vchannel in it.vchannels
        }


def _record_key(fields: dict[str, str]) -> str:
    return collection_key(fields["name"], fields["database"])
