"""What nodes tell each other of the bytes that collections store, in the metadata store.

One key for each vchannel, and one that is written with each change, so that its revision tells
whether there was any. Only the owner of a pchannel writes the keys of its vchannels; what an
earlier owner wrote late is replaced at its next look.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from broker.coordinator.catalog.collection_records import CollectionRecords
from broker.coordinator.json_records import UnreadableRecord
from broker.coordinator.records import decode_number, encode_number
from broker.model.failure import Refused, StreamingCode
from broker.ports.meta import LIST_MAX, MetaEntry, MetaError, MetaStore, get_many
from broker.ports.meta_writes import all_entries, split_write
from broker.ports.space.collection_sizes import NamedShards, ToldSizes

STORED_PREFIX: Final = "collection-stored/"
SIZES_KEY: Final = "collection-sizes"
PAGE: Final = 500


class StoredSizes:
    """CollectionSizes (`broker/ports/space/collection_sizes.py`)."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._records = CollectionRecords(store)

    async def shards(self, revision: int) -> NamedShards | None:
        """See CollectionSizes."""
        try:
            now = (await self._records.loads()).revision
            return None if now == revision else NamedShards(now, await self._vchannels())
        except MetaError as error:
            raise Refused(StreamingCode.INNER, str(error)) from error

    async def newer(self, revision: int) -> ToldSizes | None:
        """See CollectionSizes."""
        try:
            changed = await self._store.get(SIZES_KEY)
            now = 0 if changed is None else changed.revision
            return None if now == revision else ToldSizes(now, await self._told())
        except MetaError as error:
            raise Refused(StreamingCode.INNER, str(error)) from error

    async def of(self, vchannels: Sequence[str]) -> int:
        """See CollectionSizes."""
        keys = [STORED_PREFIX + it for it in vchannels]
        try:
            found = await get_many(self._store, keys)
        except MetaError as error:
            raise Refused(StreamingCode.INNER, str(error)) from error
        return sum([_number(it) for it in found if it is not None])

    async def tell(self, figures: Mapping[str, int], gone: Sequence[str]) -> None:
        """See CollectionSizes."""
        puts = {STORED_PREFIX + name: encode_number(size) for name, size in figures.items()}
        deletes = [STORED_PREFIX + it for it in gone]
        try:
            for some, others in split_write(puts, deletes):
                await self._store.write({**some, SIZES_KEY: encode_number(1)}, deletes=others)
        except MetaError as error:
            raise Refused(StreamingCode.INNER, str(error)) from error

    async def _vchannels(self) -> dict[tuple[str, str], Sequence[str]]:
        found: dict[tuple[str, str], Sequence[str]] = {}
        after = "", ""
        while True:
            page = await self._records.page_of_all(after, PAGE)
            found |= {(it.database, it.name): it.vchannels for it in page}
            if len(page) < PAGE:
                return found
            after = page[-1].database, page[-1].name

    async def _told(self) -> dict[str, int]:
        return {
            key.removeprefix(STORED_PREFIX): _number(entry)
            async for key, entry in all_entries(self._store, STORED_PREFIX, page=LIST_MAX)
        }


def _number(entry: MetaEntry) -> int:
    """What is damaged counts as nothing: the owner tells it again."""
    try:
        return decode_number(STORED_PREFIX, entry.value)
    except UnreadableRecord:
        return 0
