"""The records of segments in the meta table, one key each, with their indexes."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final

from broker.coordinator.json_records import UnreadableRecord
from broker.core.master.segment_records import (
    BINLOGS,
    CHANGED_VCHANNELS,
    ENDED,
    FLUSHES,
    LOG_VCHANNELS,
    MEMBERS,
    OPEN,
    binlogs_key,
    decode_segment_meta,
    decode_vchannel_meta,
    encode_segment_meta,
    ended_key,
    flush_key,
    id_in,
    log_collection_prefix,
    member_key,
    members_prefix,
    open_key,
    place_in,
    segment_key,
    time_in,
)
from broker.model.failure import invalid_argument
from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick
from broker.model.master.segment_meta import SegmentMeta, SegmentMetaState, VChannelMeta
from broker.ports.meta import LIST_MAX, MetaStore
from broker.ports.meta_writes import all_entries, split_write

SEGMENTS_A_WRITE: Final = 20
"""All keys of a segment are in one write."""
LOOKED_AT_ONCE: Final = 100
Place = tuple[CollectionId, PartitionId]
FORGOTTEN_AT_ONCE: Final = LIST_MAX


class SegmentBook:
    """The records of one store. A call that raises MetaError may have changed some segments.

    Who writes what: the owner of a pchannel the segments of its log while they grow and when they
    are flushed, the master the others, and every segment once it is flushed.
    """

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    # ---- reading ----------------------------------------------------------------------------

    async def find(self, id: SegmentId) -> SegmentMeta | None:
        """The segment; one read."""
        found = await self._entry(id)
        return None if found is None else found[0]

    async def page(
        self,
        collection_id: CollectionId,
        partition_id: PartitionId | None,
        after: SegmentId,
        limit: int,
    ) -> list[SegmentMeta]:
        """The segments of a partition behind `after`, or of all partitions; a read for each."""
        prefix = members_prefix(collection_id, partition_id)
        start = await self._start(prefix, partition_id, after) if after else ""
        entries = await self._store.list(prefix, limit=limit, after=start)
        return await self._all([id_in(key) for key, _ in entries])

    async def page_of_all(self, after: SegmentId, limit: int) -> list[SegmentMeta]:
        """The segments of all collections behind `after`; a read for each."""
        start = member_key(await self._last(after)) if after else ""
        entries = await self._store.list(MEMBERS, limit=limit, after=start)
        return await self._all([id_in(key) for key, _ in entries])

    async def _start(self, prefix: str, partition_id: PartitionId | None, after: SegmentId) -> str:
        if partition_id is not None:
            return f"{prefix}{after:020}"
        return member_key(await self._last(after))

    async def _last(self, id: SegmentId) -> SegmentMeta:
        last = await self.find(id)
        if last is None:
            raise invalid_argument(f"the page begins after segment {id}, which is not known")
        return last

    async def place_after(self, place: Place | None) -> Place | None:
        """The next partition of any collection that has segments; None behind the last one."""
        after = "" if place is None else members_prefix(*place) + "~"
        entries = await self._store.list(MEMBERS, limit=1, after=after)
        return place_in(entries[0][0]) if entries else None

    async def partitions_of(self, collection_id: CollectionId) -> AsyncIterator[PartitionId]:
        """The partitions of a collection that have segments; one read for each."""
        after = ""
        while entries := await self._store.list(
            members_prefix(collection_id, None), limit=1, after=after
        ):
            _, id = place_in(entries[0][0])
            yield id
            # Behind all of its segments, whose ids are digits.
            after = members_prefix(collection_id, id) + "~"

    async def flushes(self, after: SegmentId, limit: int) -> list[SegmentMeta]:
        """Flushed segments that are not acknowledged, behind `after`, in the order of flushes."""
        last = await self._last(after) if after else None
        start = "" if last is None else flush_key(last)
        entries = await self._store.list(FLUSHES, limit=limit, after=start)
        return await self._all([id_in(key) for key, _ in entries])

    async def reserved(self) -> list[SegmentMeta]:
        """The open segments with reservations."""
        ids = [id_in(key) async for key, _ in all_entries(self._store, OPEN)]
        return await self._all(ids)

    async def vchannel(self, name: str) -> VChannelMeta | None:
        """What the log of a vchannel says of its collection; one read."""
        key = LOG_VCHANNELS + name
        entry = await self._store.get(key)
        if entry is None:
            return None
        try:
            return decode_vchannel_meta(entry.value)
        except ValueError as error:
            raise UnreadableRecord(f"{key}: {error}") from error

    async def vchannels_of(self, collection_id: CollectionId) -> list[VChannelMeta]:
        """The vchannels that a collection has by their logs, dropped ones left out."""
        prefix = log_collection_prefix(collection_id)
        names = [key[len(prefix) :] async for key, _ in all_entries(self._store, prefix)]
        found = [await self.vchannel(name) for name in names]
        return [
            it
            for it in found
            if it is not None and it.collection_id == collection_id and not it.dropped
        ]

    # ---- writing ----------------------------------------------------------------------------

    async def put(self, metas: Sequence[SegmentMeta], now_ms: int) -> None:
        """Store segments with reservations: new ones, and changed ones."""
        for first in range(0, len(metas), SEGMENTS_A_WRITE):
            puts: dict[str, bytes] = {}
            deletes: list[str] = []
            for meta in metas[first : first + SEGMENTS_A_WRITE]:
                listed, unlisted = _listed(meta, now_ms)
                puts |= {segment_key(meta.id): encode_segment_meta(meta)} | listed
                deletes += unlisted
            await self._store.write(puts, deletes=deletes)

    async def drop(self, id: SegmentId, tick: TimeTick, now_ms: int) -> None:
        """The collection or the partition of a segment is gone. Conflict if it has changed."""
        found = await self._entry(id)
        if found is None or found[0].state is SegmentMetaState.DROPPED:
            return
        meta, revision = found
        dropped = replace(meta, state=SegmentMetaState.DROPPED, close_tick=meta.close_tick or tick)
        listed, unlisted = _listed(dropped, now_ms)
        await self._store.write(
            {segment_key(id): encode_segment_meta(dropped)} | listed,
            deletes=[*unlisted, flush_key(meta), binlogs_key(id)],
            expect={segment_key(id): revision},
        )

    async def acknowledge(self, id: SegmentId, now_ms: int) -> bool:
        """Stop listing a flush, from now on forget the segment some day; whether it is flushed."""
        meta = await self.find(id)
        if meta is None or meta.state is not SegmentMetaState.FLUSHED:
            return False
        key = flush_key(meta)
        # Not again: the first acknowledgement counts.
        if await self._store.get(key) is not None:
            await self._store.write({ended_key(meta, now_ms): b"1"}, deletes=[key])
        return True

    async def forget(self, before_ms: int) -> int:
        """Delete segments that ended before this time, up to a number; returns how many."""
        entries = await self._store.list(ENDED, limit=FORGOTTEN_AT_ONCE)
        old = [key for key, _ in entries if time_in(key) < before_ms]
        deletes: list[str] = []
        for key in old:
            meta = await self.find(id_in(key))
            deletes.append(key)
            if meta is not None:
                # Its owner may have listed the flush again, after a crash in the middle of a save.
                deletes += [segment_key(meta.id), member_key(meta), flush_key(meta)]
        for _, gone in split_write({}, deletes):
            await self._store.write({}, deletes=gone)
        return len(old)

    async def unacknowledged_beyond(self, count: int) -> list[SegmentId]:
        """The oldest flushes that are more than `count` from the newest one."""
        ids = [id_in(key) async for key, _ in all_entries(self._store, FLUSHES, page=LIST_MAX)]
        return ids[: max(0, len(ids) - count)]

    # ---- files of writers -------------------------------------------------------------------

    async def put_binlogs(self, id: SegmentId, count: int) -> None:
        """Remember how many files a growing segment has."""
        await self._store.write({binlogs_key(id): b"%d" % count})

    async def binlogs(self) -> dict[SegmentId, int]:
        """The number of files of each growing segment that writers reported."""
        return {
            id_in(key): int(entry.value) async for key, entry in all_entries(self._store, BINLOGS)
        }

    async def forget_binlogs(self, ids: Sequence[SegmentId]) -> None:
        """These segments grow no more."""
        for _, gone in split_write({}, [binlogs_key(id) for id in ids]):
            await self._store.write({}, deletes=gone)

    # ---- dropped vchannels ------------------------------------------------------------------

    async def changed_vchannels(self) -> list[tuple[str, int]]:
        """Vchannels whose segments may have been dropped, with the revision of the mark."""
        entries = await self._store.list(CHANGED_VCHANNELS, limit=LOOKED_AT_ONCE)
        return [(key[len(CHANGED_VCHANNELS) :], entry.revision) for key, entry in entries]

    async def looked_at(self, vchannel: str, revision: int, gone: CollectionId | None) -> None:
        """Remove the mark. `gone`: a collection that is not on the vchannel any more. Conflict."""
        key = CHANGED_VCHANNELS + vchannel
        deletes = [key] if gone is None else [key, log_collection_prefix(gone) + vchannel]
        await self._store.write({}, deletes=deletes, expect={key: revision})

    # ---- inside -----------------------------------------------------------------------------

    async def _entry(self, id: SegmentId) -> tuple[SegmentMeta, int] | None:
        key = segment_key(id)
        entry = await self._store.get(key)
        if entry is None:
            return None
        try:
            return decode_segment_meta(entry.value), entry.revision
        except ValueError as error:
            raise UnreadableRecord(f"{key}: {error}") from error

    async def _all(self, ids: Sequence[SegmentId]) -> list[SegmentMeta]:
        found = [await self.find(id) for id in ids]
        return [it for it in found if it is not None]


def _listed(meta: SegmentMeta, now_ms: int) -> tuple[dict[str, bytes], list[str]]:
    """The indexes of a segment: those that list it, and those that do not."""
    member, opened = member_key(meta), open_key(meta.id)
    match meta.state:
        case SegmentMetaState.DROPPED:
            return {ended_key(meta, now_ms): b"1"}, [member, opened]
        case SegmentMetaState.FLUSHED:
            return {member: b"1", flush_key(meta): b"1"}, [opened]
        case _:
            return {member: b"1", opened: b"1"}, []
