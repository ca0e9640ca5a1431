"""The regular rounds over segments: those of dropped partitions, old ones, repeated reports."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from broker.master.segments.segment_book import Place, SegmentBook
from broker.master.segments.segment_owners import SegmentOwners
from broker.model.effect import ALL_PARTITIONS
from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick
from broker.model.master.segment_meta import (
    SegmentMeta,
    SegmentMetaState,
    SegmentOrigin,
    VChannelMeta,
)
from broker.ports.meta import Conflict

PAGE: Final = 100
PLACES_A_ROUND: Final = 50
DROPPED_A_ROUND: Final = 200
"""Segments; between two rounds other requests are answered."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """What is remembered of segments, and for how long."""

    kept_ms: int = 7 * 24 * 3600 * 1000
    """How long a segment is remembered after it was acknowledged, passed or dropped."""
    unacknowledged_max: int = 10_000
    """Flushes that wait for their reader; the oldest beyond are passed, and logged."""
    binlogs_max: int = 10_000
    """Growing segments with a number of files; reports of more are not remembered."""


class SegmentSweep:
    """See the module. Every round may be cut short and repeated."""

    def __init__(self, book: SegmentBook, owners: SegmentOwners, limits: SweepLimits) -> None:
        self._limits = limits
        self._book = book
        self._owners = owners
        self._place: Place | None = None
        self._binlogs: dict[SegmentId, int] | None = None
        self._dropped = self._forgotten = self._passed = 0

    def statistics(self) -> Mapping[str, int]:
        """What the rounds have done."""
        return {
            "dropped": self._dropped,
            "forgotten": self._forgotten,
            "flushes_passed": self._passed,
        }

    # ---- files of writers -------------------------------------------------------------------

    async def count_binlogs(self, id: SegmentId, count: int) -> bool:
        """Remember the files of a growing segment of a log; False if it is none."""
        known = await self._known_binlogs()
        meta = await self._growing(id)
        if meta is None or (id not in known and len(known) >= self._limits.binlogs_max):
            return False
        if count > known.get(id, 0):
            await self._book.put_binlogs(id, count)
            known[id] = count
        return True

    async def report_binlogs(self, ids: Sequence[SegmentId]) -> None:
        """Report what is known of these segments to their owners. Refused(INNER): repeat it."""
        known = await self._known_binlogs()
        grown: list[tuple[str, SegmentId, int]] = []
        over: list[SegmentId] = []
        for id in ids:
            meta = await self._growing(id) if id in known else None
            if meta is not None:
                grown.append((meta.vchannel, id, known[id]))
            elif id in known:
                over.append(id)
        await self._book.forget_binlogs(over)
        for id in over:
            del known[id]
        await self._owners.report_binlogs(grown)

    async def _known_binlogs(self) -> dict[SegmentId, int]:
        if self._binlogs is None:
            self._binlogs = await self._book.binlogs()
        return self._binlogs

    async def _growing(self, id: SegmentId) -> SegmentMeta | None:
        meta = await self._book.find(id)
        if meta is None or meta.origin is not SegmentOrigin.LOG:
            return None
        return meta if meta.state is SegmentMetaState.GROWING else None

    # ---- rounds -----------------------------------------------------------------------------

    async def tidy(self, now_ms: int) -> None:
        """Forget what ended long ago, pass flushes nobody reads, repeat reports to owners."""
        self._forgotten += await self._book.forget(now_ms - self._limits.kept_ms)
        passed = await self._book.unacknowledged_beyond(self._limits.unacknowledged_max)
        for id in passed:
            await self._book.acknowledge(id, now_ms)
        self._passed += len(passed)
        if passed:
            log.warning(
                "flushed segments were not acknowledged, the oldest are passed",
                passed=len(passed),
                limit=self._limits.unacknowledged_max,
            )
        # An owner keeps the numbers in memory: a new one does not know them.
        await self.report_binlogs(list(await self._known_binlogs()))

    async def drop_of_logs(self, now_ms: int, tick: Callable[[], Awaitable[TimeTick]]) -> bool:
        """Drop the segments of collections and partitions that their logs have dropped.

        Returns whether any log has changed since the last round.
        """
        left = DROPPED_A_ROUND
        changed = await self._book.changed_vchannels()
        for vchannel, revision in changed:
            found = await self._book.vchannel(vchannel)
            # The owner changes the vchannel again: the mark stays, and the next round looks again.
            with suppress(Conflict):
                if found is not None:
                    left -= await self._drop_of(found, left, now_ms, tick)
                    if left <= 0:
                        return True
                gone = found.collection_id if found is not None and found.dropped else None
                await self._book.looked_at(vchannel, revision, gone)
        return bool(changed)

    async def _drop_of(
        self,
        vchannel: VChannelMeta,
        count_max: int,
        now_ms: int,
        tick: Callable[[], Awaitable[TimeTick]],
    ) -> int:
        """Drop up to `count_max` segments of partitions that are gone; returns how many."""
        kept = () if vchannel.dropped else (ALL_PARTITIONS, *vchannel.partition_ids)
        dropped = 0
        # Not all segments are read: most changes of a vchannel are new partitions and schemas.
        async for partition in self._book.partitions_of(vchannel.collection_id):
            if partition in kept:
                continue
            async for each in self._segments_of(vchannel.collection_id, partition):
                if each.vchannel == vchannel.name:
                    await self._book.drop(each.id, await tick(), now_ms)
                    self._dropped += 1
                    dropped += 1
                    if dropped == count_max:
                        return dropped
        return dropped

    async def drop_orphans(
        self,
        now_ms: int,
        partitions_of: Callable[[CollectionId], Awaitable[Collection[PartitionId] | None]],
        tick: Callable[[], Awaitable[TimeTick]],
    ) -> None:
        """Drop flushed segments of no log whose partition is gone; some partitions a round."""
        most = self._dropped + DROPPED_A_ROUND
        for _ in range(PLACES_A_ROUND):
            self._place = await self._book.place_after(self._place)
            if self._place is None:
                return
            collection_id, partition_id = self._place
            if partition_id in (ALL_PARTITIONS, *(await partitions_of(collection_id) or ())):
                continue
            async for each in self._segments_of(collection_id, partition_id):
                # The others are dropped when their logs say so.
                if each.origin is SegmentOrigin.RESERVED and each.close_tick:
                    with suppress(Conflict):
                        await self._book.drop(each.id, await tick(), now_ms)
                        self._dropped += 1
                if self._dropped >= most:
                    return

    async def _segments_of(
        self, collection_id: CollectionId, partition_id: PartitionId
    ) -> AsyncIterator[SegmentMeta]:
        after = SegmentId(0)
        while page := await self._book.page(collection_id, partition_id, after, PAGE):
            for each in page:
                yield each
            after = page[-1].id
