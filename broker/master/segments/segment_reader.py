"""Answers questions about segments from the records; it changes none."""

from collections.abc import Sequence
from typing import assert_never

from actors import Actor, Context, Envelope
from broker.master.segments.messages import (
    IDS_MAX,
    DescribeSegment,
    FindSegments,
    ListFlushes,
    SegmentReaderMessage,
    SegmentsPage,
    ShowSegments,
)
from broker.master.segments.partition_lookup import PartitionLookup, unknown
from broker.master.segments.segment_book import SegmentBook
from broker.model.effect import ALL_PARTITIONS
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.model.master.segment_meta import SegmentMeta
from broker.ports.meta import MetaError, MetaStore

Answer = SegmentsPage | tuple[SegmentMeta | None, ...] | tuple[SegmentMeta, int]


class SegmentReader(Actor[SegmentReaderMessage]):
    """Reads wait for no change. The cost of an answer does not grow with the number of segments."""

    def __init__(self, store: MetaStore, lookup: PartitionLookup) -> None:
        self._book = SegmentBook(store)
        self._lookup = lookup

    async def started(self, context: Context[SegmentReaderMessage]) -> None:
        """Nothing to prepare."""

    async def receive(self, batch: Sequence[Envelope[SegmentReaderMessage]]) -> None:
        for envelope in batch:
            try:
                envelope.reply(await self._answer(envelope.message))
            except Refused as error:
                envelope.fail(error)
            except MetaError as error:
                envelope.fail(Refused(StreamingCode.INNER, str(error)))

    async def _answer(self, message: SegmentReaderMessage) -> Answer:
        match message:
            case ShowSegments():
                return await self._show(message)
            case FindSegments(ids):
                if len(ids) > IDS_MAX:
                    raise invalid_argument(
                        f"a request names {len(ids)} segments; at most {IDS_MAX}"
                    )
                return tuple([await self._book.find(it) for it in ids])
            case DescribeSegment():
                return await self._describe(message)
            case ListFlushes(after, limit):
                return _page(await self._book.flushes(after, _limit(limit) + 1), limit)
            case _:
                assert_never(message)

    async def _show(self, asked: ShowSegments) -> SegmentsPage:
        if not asked.collection_id:
            return await self._show_all(asked)
        known = await self._lookup.partitions_of(asked.collection_id)
        if known is None:
            raise unknown(f"there is no collection {asked.collection_id}")
        if asked.partition_id not in (None, ALL_PARTITIONS, *known):
            raise unknown(f"collection {asked.collection_id} has no partition {asked.partition_id}")
        found = await self._book.page(
            asked.collection_id, asked.partition_id, asked.after, _limit(asked.limit) + 1
        )
        return _page(found, asked.limit)

    async def _show_all(self, asked: ShowSegments) -> SegmentsPage:
        if asked.partition_id is not None:
            raise invalid_argument(
                f"partition {asked.partition_id} is given without its collection; name both"
            )
        found = await self._book.page_of_all(asked.after, _limit(asked.limit) + 1)
        return _page(found, asked.limit)

    async def _describe(self, asked: DescribeSegment) -> tuple[SegmentMeta, int]:
        if await self._lookup.partitions_of(asked.collection_id) is None:
            raise unknown(f"there is no collection {asked.collection_id}")
        found = await self._book.find(asked.segment_id)
        if found is None or found.collection_id != asked.collection_id:
            raise unknown(f"collection {asked.collection_id} has no segment {asked.segment_id}")
        return found, await self._lookup.index_of(asked.collection_id)


def _limit(limit: int) -> int:
    """The limit of a page; one more is read, to know whether there are more."""
    if not 1 <= limit < IDS_MAX:
        raise invalid_argument(f"a page has 1 to {IDS_MAX - 1} segments, not {limit}")
    return limit


def _page(found: Sequence[SegmentMeta], limit: int) -> SegmentsPage:
    return SegmentsPage(tuple(found[:limit]), more=len(found) > limit)
