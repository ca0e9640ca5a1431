"""Segments: which there are, rows reserved in them, statistics, acknowledged flushes."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from broker.client.cluster.retrying import is_retriable, retried
from broker.client.cluster.service import ServiceCalls
from broker.client.errors import ChannelNotExist, TidemarkError
from broker.model.effect import SegmentLevel
from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick
from broker.model.master.segment_meta import SegmentMeta, SegmentMetaState, SegmentOrigin
from broker.transport import WireMessage
from schemas.generated.tidemark import v1

IDS_A_CALL = 500
PAGE_MAX = 999
W = TypeVar("W", bound=WireMessage)


@dataclass(frozen=True, slots=True)
class SegmentRequest:
    """`count` rows that will arrive on `channel`, a pchannel or a vchannel of the collection."""

    count: int
    channel: str
    collection: str
    partition: str = "_default"
    database: str = ""


@dataclass(frozen=True, slots=True)
class SegmentAssignment:
    """Room for `count` rows. Rows with a tick above `expire_tick` must not use it.

    `error`: why this request was refused, and what to do; "" when it was not.
    """

    segment_id: SegmentId
    count: int
    expire_tick: TimeTick
    collection_id: CollectionId
    partition_id: PartitionId
    error: str = ""


@dataclass(frozen=True, slots=True)
class SegmentLoad:
    """What a query node has loaded of a segment."""

    segment_id: int
    memory_bytes: int
    rows: int
    recently_modified: bool = True


class SegmentCalls:
    """Part of `log.master`. Errors that may pass are retried until the deadline, then raised."""

    def __init__(self, calls: ServiceCalls, *, deadline_s: float) -> None:
        self._calls = calls
        self._deadline_s = deadline_s

    async def show_segments(
        self, collection_id: int, partition_id: int | None = None, *, most: int | None = None
    ) -> list[SegmentMeta]:
        """The segments of a partition, or of the whole collection, as their logs saved them.

        The id 0 stands for all collections. `most`: the first ones only, by collection, partition
        and id.

        A new or a flushed segment shows within two seconds; rows are counted up to
        `modified_tick`, which is at most `SNAPSHOT_PERIOD_S` old. ChannelNotExist for an unknown
        collection, or a partition that is not in it.
        """
        found: list[SegmentMeta] = []
        more = True
        while more and (most is None or len(found) < most):
            request = v1.ShowSegmentsRequest(
                collection_id=collection_id,
                partition_id=partition_id,
                after=found[-1].id if found else 0,
                limit=0 if most is None else min(PAGE_MAX, most - len(found)),
            )
            page = await self._ask("ShowSegments", request, v1.ShowSegmentsResponse)
            found += [_segment(it) for it in page.segments]
            more = page.more and bool(page.segments)
        return found

    async def describe_segment(self, collection_id: int, segment_id: int) -> int:
        """The index of the segment; 0: it has none. ChannelNotExist if it is not there."""
        request = v1.DescribeSegmentRequest(collection_id=collection_id, segment_id=segment_id)
        answer = await self._ask("DescribeSegment", request, v1.DescribeSegmentResponse)
        return answer.index_id

    async def get_segment_states(self, segment_ids: Iterable[int]) -> Mapping[int, str]:
        """ "growing", "sealed", "flushed", "dropped" or "not_exist" of each segment."""
        ids = list(segment_ids)
        states: dict[int, str] = {}
        for first in range(0, len(ids), IDS_A_CALL):
            request = v1.GetSegmentStatesRequest(segment_ids=ids[first : first + IDS_A_CALL])
            answer = await self._ask("GetSegmentStates", request, v1.GetSegmentStatesResponse)
            states.update({it.segment_id: it.state for it in answer.states})
        return states

    async def assign_segment_id(
        self, requests: Sequence[SegmentRequest]
    ) -> list[SegmentAssignment]:
        """Reserve rows in segments; one answer each, in this order. See `SegmentAssignment.error`.

        For writers that fill segments themselves: a segment that is opened here takes nothing from
        the log. Not retried: a repeat reserves again, and what is not used expires.
        """
        request = v1.AssignSegmentIdRequest(
            requests=[
                v1.SegIdRequest(
                    count=it.count,
                    channel_name=it.channel,
                    collection_name=it.collection,
                    partition_name=it.partition,
                    db_name=it.database,
                )
                for it in requests
            ]
        )
        answer = await self._calls.ask("AssignSegmentID", request, v1.AssignSegmentIdResponse)
        return [
            SegmentAssignment(
                SegmentId(it.segment_id),
                it.count,
                TimeTick(it.expire_time),
                CollectionId(it.collection_id),
                PartitionId(it.partition_id),
                it.cause,
            )
            for it in answer.assignments
        ]

    async def seal_collection(self, collection_id: int) -> int:
        """Seal its growing segments; returns how many vchannels were told to. Idempotent.

        A sealed segment is flushed when nothing can be written into it any more.
        """
        request = v1.SealCollectionRequest(collection_id=collection_id)
        answer = await self._ask("SealCollection", request, v1.SealCollectionResponse)
        return answer.vchannels

    async def report_query_node(
        self, node: int, timestamp: int, loads: Iterable[SegmentLoad]
    ) -> list[int]:
        """Report what a query node has loaded; returns the segments that nobody knows."""
        request = v1.QueryNodeStats(
            id=node,
            timestamp=timestamp,
            seg_stats=[
                v1.SegmentStats(
                    segment_id=it.segment_id,
                    memory_size=it.memory_bytes,
                    num_rows=it.rows,
                    recently_modified=it.recently_modified,
                )
                for it in loads
            ],
        )
        answer = await self._ask("ReportQueryNode", request, v1.ReportQueryNodeResponse)
        return list(answer.unknown_segment_ids)

    async def report_binlogs(self, counts: Mapping[int, int]) -> list[int]:
        """Report how many files writers have made of growing segments; more than 32 seal one.

        Returns those that are not known to grow. A segment is known within two seconds.
        """
        segments = [v1.SegmentBinlogs(segment_id=id, binlogs=it) for id, it in counts.items()]
        request = v1.ReportBinlogsRequest(segments=segments)
        answer = await self._ask("ReportBinlogs", request, v1.ReportBinlogsResponse)
        return list(answer.unknown_segment_ids)

    async def list_flushes(self) -> AsyncIterator[SegmentMeta]:
        """The flushed segments that nobody has acknowledged, oldest flush first."""
        after, more = 0, True
        while more:
            request = v1.ListFlushesRequest(after=after)
            page = await self._ask("ListFlushes", request, v1.ListFlushesResponse)
            for each in page.segments:
                yield _segment(each)
                after = each.segment_id
            more = page.more and bool(page.segments)

    async def acknowledge_flushes(self, segment_ids: Iterable[int]) -> list[int]:
        """These flushed segments need not be listed again; durable when it returns. Idempotent.

        Returns those that are not flushed, or are not there any more.
        """
        ids, refused = list(segment_ids), list[int]()
        for first in range(0, len(ids), IDS_A_CALL):
            request = v1.AcknowledgeFlushesRequest(segment_ids=ids[first : first + IDS_A_CALL])
            answer = await self._ask("AcknowledgeFlushes", request, v1.AcknowledgeFlushesResponse)
            refused += answer.refused_segment_ids
        return refused

    async def _ask(self, method: str, request: WireMessage, answer: type[W]) -> W:
        async def attempt() -> W:
            return await self._calls.ask(method, request, answer)

        return await retried(attempt, self._deadline_s, may_retry=_may_retry)


def _may_retry(error: TidemarkError) -> bool:
    """Waiting does not help where the server says that something does not exist."""
    return is_retriable(error) and not isinstance(error, ChannelNotExist)


def _segment(it: v1.SegmentMeta) -> SegmentMeta:
    return SegmentMeta(
        id=SegmentId(it.segment_id),
        collection_id=CollectionId(it.collection_id),
        partition_id=PartitionId(it.partition_id),
        partition_tag=it.partition_tag,
        channel_start=it.channel_start,
        channel_end=it.channel_end,
        open_tick=TimeTick(it.open_time),
        close_tick=TimeTick(it.close_time),
        rows=it.num_rows,
        size_bytes=it.mem_size,
        modified_tick=TimeTick(it.modified_time),
        state=SegmentMetaState(it.state),
        origin=SegmentOrigin(it.origin),
        level=SegmentLevel[it.level.upper()],
        vchannel=it.vchannel,
        rows_max=it.rows_max,
        size_bytes_max=it.bytes_max,
    )
