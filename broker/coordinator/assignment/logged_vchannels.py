"""The vchannels with a collection by their logs, Milvus's own collections included."""

from broker.coordinator.json_records import UnreadableRecord
from broker.core.master.segment_records import LOG_VCHANNELS, decode_vchannel_meta
from broker.model.ids import CollectionId, VChannelName
from broker.ports.meta import LIST_MAX, MetaStore
from broker.ports.meta_writes import all_entries


async def logged_vchannels(store: MetaStore) -> dict[VChannelName, CollectionId]:
    """The collection of each vchannel, dropped ones left out. MetaError."""
    found: dict[VChannelName, CollectionId] = {}
    async for key, entry in all_entries(store, LOG_VCHANNELS, page=LIST_MAX):
        try:
            meta = decode_vchannel_meta(entry.value)
        except ValueError as error:
            raise UnreadableRecord(f"{key}: {error}") from error
        if not meta.dropped:
            found[VChannelName(meta.name)] = meta.collection_id
    return found
