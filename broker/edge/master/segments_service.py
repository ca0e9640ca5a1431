"""tidemark.v1.Master: segments, reservations, statistics, acknowledged flushes."""

from collections.abc import Mapping
from typing import Final

from grpclib.const import Handler

from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.master.segments.messages import (
    PAGE,
    AcknowledgeFlushes,
    AssignRows,
    CountBinlogs,
    CountStatistics,
    DescribeSegment,
    FindSegments,
    ListFlushes,
    RowsAsked,
    RowsAssigned,
    SealCollection,
    SegmentsPage,
    ShowSegments,
)
from broker.model.failure import Refusal
from broker.model.ids import CollectionId, PartitionId, SegmentId, TimeTick
from broker.model.master.reservation import SegmentStatistics
from broker.model.master.segment_meta import SegmentMeta
from schemas.generated.tidemark import v1

SERVICE: Final = "/tidemark.v1.Master/"
NOT_EXIST: Final = "not_exist"
CHANGE_S: Final = 20.0
"""Longer than the keeper waits for the owners of pchannels."""


class SegmentReadsService:
    """ShowSegments, DescribeSegment, GetSegmentStates, ListFlushes."""

    def __init__(self, middleware: Middleware, reader: Proxy) -> None:
        self._middleware = middleware
        self._reader = reader

    def __mapping__(self) -> Mapping[str, Handler]:
        unary = self._middleware.unary
        return {
            SERVICE + "ShowSegments": unary(v1.ShowSegmentsRequest, self.show),
            SERVICE + "DescribeSegment": unary(v1.DescribeSegmentRequest, self.describe),
            SERVICE + "GetSegmentStates": unary(v1.GetSegmentStatesRequest, self.states),
            SERVICE + "ListFlushes": unary(v1.ListFlushesRequest, self.flushes),
        }

    async def show(self, request: v1.ShowSegmentsRequest) -> v1.ShowSegmentsResponse:
        """CHANNEL_NOT_EXIST for an unknown collection, or a partition that is not in it."""
        partition = request.partition_id
        asked = ShowSegments(
            CollectionId(request.collection_id),
            None if partition is None else PartitionId(partition),
            SegmentId(request.after),
            request.limit or PAGE,
        )
        page: SegmentsPage = await self._reader.ask(asked)
        return v1.ShowSegmentsResponse(
            segment_ids=[it.id for it in page.segments],
            segments=[_segment(it) for it in page.segments],
            more=page.more,
        )

    async def describe(self, request: v1.DescribeSegmentRequest) -> v1.DescribeSegmentResponse:
        """CHANNEL_NOT_EXIST for an unknown collection, or a segment that is not in it."""
        asked = DescribeSegment(CollectionId(request.collection_id), SegmentId(request.segment_id))
        segment, index_id = await self._reader.ask(asked)
        return v1.DescribeSegmentResponse(index_id=index_id, segment=_segment(segment))

    async def states(self, request: v1.GetSegmentStatesRequest) -> v1.GetSegmentStatesResponse:
        """The states in the order of the request."""
        ids = tuple(map(SegmentId, request.segment_ids))
        found = await self._reader.ask(FindSegments(ids))
        return v1.GetSegmentStatesResponse(
            states=[_state(id, it) for id, it in zip(ids, found, strict=True)]
        )

    async def flushes(self, request: v1.ListFlushesRequest) -> v1.ListFlushesResponse:
        """Flushed segments that wait for an acknowledgement."""
        asked = ListFlushes(SegmentId(request.after), request.limit or PAGE)
        page: SegmentsPage = await self._reader.ask(asked)
        return v1.ListFlushesResponse(
            segments=[_segment(it) for it in page.segments], more=page.more
        )


class SegmentsService:
    """AssignSegmentID, SealCollection, ReportQueryNode, ReportBinlogs, AcknowledgeFlushes."""

    def __init__(self, middleware: Middleware, keeper: Proxy) -> None:
        self._middleware = middleware
        self._keeper = keeper

    def __mapping__(self) -> Mapping[str, Handler]:
        unary = self._middleware.unary
        return {
            SERVICE + "AssignSegmentID": unary(v1.AssignSegmentIdRequest, self.assign),
            SERVICE + "SealCollection": unary(v1.SealCollectionRequest, self.seal),
            SERVICE + "ReportQueryNode": unary(v1.QueryNodeStats, self.count),
            SERVICE + "ReportBinlogs": unary(v1.ReportBinlogsRequest, self.count_binlogs),
            SERVICE + "AcknowledgeFlushes": unary(v1.AcknowledgeFlushesRequest, self.acknowledge),
        }

    async def assign(self, request: v1.AssignSegmentIdRequest) -> v1.AssignSegmentIdResponse:
        """Reserve rows. A request that is refused has a code and a cause; the others hold."""
        asked = tuple(
            [
                RowsAsked(
                    it.count, it.channel_name, it.collection_name, it.partition_name, it.db_name
                )
                for it in request.requests
            ]
        )
        answers = await self._keeper.ask(AssignRows(asked), deadline_s=CHANGE_S)
        return v1.AssignSegmentIdResponse(
            assignments=[
                _assignment(it, of) for it, of in zip(request.requests, answers, strict=True)
            ]
        )

    async def seal(self, request: v1.SealCollectionRequest) -> v1.SealCollectionResponse:
        """CHANNEL_NOT_EXIST for an unknown collection; INNER while an owner does not answer."""
        asked = SealCollection(CollectionId(request.collection_id))
        sealed = await self._keeper.ask(asked, deadline_s=CHANGE_S)
        return v1.SealCollectionResponse(
            segment_ids=list(sealed.segment_ids), vchannels=sealed.vchannels
        )

    async def count(self, request: v1.QueryNodeStats) -> v1.ReportQueryNodeResponse:
        """Count the statistics of a query node; unknown segments are named in the answer."""
        segments = tuple(
            [
                SegmentStatistics(
                    SegmentId(it.segment_id), it.memory_size, it.num_rows, it.recently_modified
                )
                for it in request.seg_stats
            ]
        )
        asked = CountStatistics(request.id, TimeTick(request.timestamp), segments)
        counted = await self._keeper.ask(asked, deadline_s=CHANGE_S)
        return v1.ReportQueryNodeResponse(
            updated=counted.updated,
            ignored=counted.ignored,
            unknown_segment_ids=list(counted.unknown),
        )

    async def count_binlogs(self, request: v1.ReportBinlogsRequest) -> v1.ReportBinlogsResponse:
        """Count files of growing segments. INNER while an owner does not answer: report again."""
        counts = tuple([(SegmentId(it.segment_id), it.binlogs) for it in request.segments])
        unknown = await self._keeper.ask(CountBinlogs(counts), deadline_s=CHANGE_S)
        return v1.ReportBinlogsResponse(unknown_segment_ids=list(unknown))

    async def acknowledge(
        self, request: v1.AcknowledgeFlushesRequest
    ) -> v1.AcknowledgeFlushesResponse:
        """Stop listing these flushes. Durable when answered."""
        ids = tuple(map(SegmentId, request.segment_ids))
        refused = await self._keeper.ask(AcknowledgeFlushes(ids), deadline_s=CHANGE_S)
        return v1.AcknowledgeFlushesResponse(refused_segment_ids=list(refused))


def _segment(meta: SegmentMeta) -> v1.SegmentMeta:
    return v1.SegmentMeta(
        segment_id=meta.id,
        collection_id=meta.collection_id,
        partition_tag=meta.partition_tag,
        channel_start=meta.channel_start,
        channel_end=meta.channel_end,
        open_time=meta.open_tick,
        close_time=meta.close_tick,
        num_rows=meta.rows,
        mem_size=meta.size_bytes,
        partition_id=meta.partition_id,
        state=meta.state.value,
        origin=meta.origin.value,
        vchannel=meta.vchannel,
        modified_time=meta.modified_tick,
        rows_max=meta.rows_max,
        bytes_max=meta.size_bytes_max,
        level=meta.level.name.lower(),
    )


def _state(id: SegmentId, meta: SegmentMeta | None) -> v1.SegmentStateInfo:
    if meta is None:
        return v1.SegmentStateInfo(segment_id=id, state=NOT_EXIST)
    return v1.SegmentStateInfo(
        segment_id=id,
        state=meta.state.value,
        open_time=meta.open_tick,
        close_time=meta.close_tick,
    )


def _assignment(asked: v1.SegIdRequest, answer: RowsAssigned | Refusal) -> v1.SegIdAssignment:
    assignment = v1.SegIdAssignment(
        channel_name=asked.channel_name,
        collection_name=asked.collection_name,
        partition_name=asked.partition_name,
    )
    if isinstance(answer, Refusal):
        assignment.code, assignment.cause = int(answer.code), answer.cause
        return assignment
    assignment.segment_id, assignment.count = answer.segment_id, asked.count
    assignment.expire_time = answer.expire_tick
    assignment.collection_id = answer.collection_id
    assignment.partition_id = answer.partition_id
    return assignment
