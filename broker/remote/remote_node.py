"""A node process, as the coordinator sees it: assigns and removes channels, polls status, appends.

It reports when nothing listens at the node's address any more.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from broker.model.channel import (
    AccessMode,
    ChannelOffsets,
    ChannelTicks,
    PChannel,
    SegmentCounts,
)
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import MessageId, NodeId, PChannelName, Term, TimeTick
from broker.model.master.reservation import SegmentOrders
from broker.model.message import Appended, NewMessage
from broker.model.snapshot import WalCheckpoint
from broker.model.stage import StageName
from broker.ports.nodes import Unreachable
from broker.remote.calls import Calls
from broker.transport import WireMessage
from schemas.generated.milvus.proto import streaming as wire
from schemas.generated.tidemark import v1

SERVICE = "/milvus.proto.streaming.StreamingNodeManagerService/"
LOG = "/tidemark.v1.Log/"
COPIES = "/tidemark.v1.Copies/"
ADMIN = "/tidemark.v1.Admin/"
SETTINGS = "/tidemark.v1.NodeSettings/"
ASSIGN_S = 300.0
"""Long enough to recover a large log."""
REMOVE_S = 30.0
LOOK_S = 2.0
APPEND_S = 40.0
"""Longer than the node waits for its own log, so that its answer arrives first."""

W = TypeVar("W", bound=WireMessage)


class RemoteNode:
    """A `NodeControl` over gRPC. `absent` is called when nothing listens at `address` any more."""

    def __init__(
        self, node_id: NodeId, address: str, calls: Calls, absent: Callable[[], None]
    ) -> None:
        self._node_id = node_id
        self._address = address
        self._calls = calls
        self._absent = absent

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    @property
    def address(self) -> str:
        return self._address

    async def assign(self, channel: PChannel) -> None:
        """See NodeControl."""
        request = wire.StreamingNodeManagerAssignRequest(pchannel=_info(channel))
        answer = wire.StreamingNodeManagerAssignResponse
        await self._call(SERVICE + "Assign", request, answer, ASSIGN_S)

    async def remove(self, name: PChannelName, term: Term) -> None:
        """See NodeControl."""
        request = wire.StreamingNodeManagerRemoveRequest(pchannel=_info(PChannel(name, term)))
        answer = wire.StreamingNodeManagerRemoveResponse
        await self._call(SERVICE + "Remove", request, answer, REMOVE_S)

    async def status(self) -> Sequence[ChannelTicks]:
        """See NodeControl."""
        request = wire.StreamingNodeManagerCollectStatusRequest()
        answer = await self._call(
            SERVICE + "CollectStatus",
            request,
            wire.StreamingNodeManagerCollectStatusResponse,
            LOOK_S,
        )
        wals = answer.metrics.wals if answer.metrics is not None else []
        return [_ticks(wal) for wal in wals]

    async def describe(
        self, names: Sequence[PChannelName]
    ) -> Mapping[PChannelName, ChannelOffsets]:
        """See NodeControl."""
        # `served_only`: a channel that has just moved must not fail the answer about the others.
        request = v1.DescribeRequest(channels=list(names), served_only=True)
        answer = await self._call(LOG + "Describe", request, v1.DescribeResponse, LOOK_S)
        found = [
            ChannelOffsets(
                name=PChannelName(it.channel),
                term=Term(it.term),
                first_id=MessageId(it.first_id),
                next_id=MessageId(it.next_id),
                closed_tick=TimeTick(it.closed_tick),
                size_bytes=it.size_bytes,
                last_confirmed_id=MessageId(it.last_confirmed_id),
                open_txns=it.open_txns,
                open_txn_bytes=it.open_txn_bytes,
                checkpoint=_checkpoint(it),
                segments=SegmentCounts(it.growing_segments, it.growing_bytes, it.sealed_segments),
                observed_tick=TimeTick(it.observed_tick),
                prepared_txns=it.prepared_txns,
                removed_tick=TimeTick(it.removed_tick),
            )
            for it in answer.channels
        ]
        return {it.name: it for it in found}

    async def append(
        self, name: PChannelName, messages: Sequence[NewMessage]
    ) -> Sequence[Appended | Refusal]:
        """See NodeControl."""
        copies = [_copy(it) for it in messages]
        request = v1.AppendCopiesRequest(pchannel=name, copies=copies)
        try:
            answer = await self._call(COPIES + "Append", request, v1.AppendCopiesResponse, APPEND_S)
        except Unreachable as error:
            # The node may have stored them before the connection broke.
            raise Refused(StreamingCode.UNKNOWN, error.refusal.cause) from error
        return [_outcome(it) for it in answer.outcomes]

    async def order_segments(self, name: PChannelName, orders: SegmentOrders) -> None:
        """See NodeControl."""
        binlogs = [v1.BinlogCount(segment_id=id, binlogs=it) for id, it in orders.binlogs]
        request = v1.OrderSegmentsRequest(
            pchannel=name,
            binlogs=binlogs,
            seal=list(orders.seal),
            seal_collections=list(orders.seal_collections),
        )
        await self._call(COPIES + "OrderSegments", request, v1.OrderSegmentsResponse, LOOK_S)

    async def pause_consumption(self, *, paused: bool) -> None:
        """See NodeControl."""
        request = v1.PauseConsumptionRequest(paused=paused)
        await self._call(ADMIN + "PauseConsumption", request, v1.PauseConsumptionResponse, LOOK_S)

    async def refresh_settings(self, revision: int) -> int:
        """See NodeControl."""
        request = v1.RefreshSettingsRequest(revision=revision)
        answer = await self._call(SETTINGS + "Refresh", request, v1.RefreshSettingsResponse, LOOK_S)
        return answer.revision

    def release(self) -> None:
        """See NodeControl."""
        self._calls.close()

    async def _call(self, path: str, request: WireMessage, answer: type[W], deadline_s: float) -> W:
        try:
            return await self._calls.call(path, request, answer, deadline_s=deadline_s)
        except Unreachable as error:
            # A timeout proves nothing: a node that hangs may come back with its lease.
            if error.absent:
                self._absent()
            raise


def _copy(it: NewMessage) -> v1.CopyToAppend:
    stage = it.stage
    return v1.CopyToAppend(
        vchannel=it.vchannel,
        type=it.type,
        body=it.body,
        size=it.size,
        pchannel_level=it.pchannel_level,
        txn_id=0 if it.txn is None else it.txn.id,
        stage=None if stage is None else _stage(stage),
    )


def _stage(name: StageName) -> v1.StageId:
    return v1.StageId(app=name.app, batch=name.batch, part=name.part, attempt=name.attempt)


def _checkpoint(it: v1.ChannelOffsets) -> WalCheckpoint | None:
    if not it.checkpoint_tick:
        return None
    return WalCheckpoint(MessageId(it.checkpoint_id), TimeTick(it.checkpoint_tick))


def _outcome(it: v1.AppendedCopy) -> Appended | Refusal:
    if it.code:
        return Refusal(StreamingCode(it.code), it.cause)
    return Appended(
        MessageId(it.message_id), TimeTick(it.time_tick), MessageId(it.last_confirmed_id)
    )


def _info(channel: PChannel) -> wire.PChannelInfo:
    return wire.PChannelInfo(
        name=channel.name,
        term=channel.term,
        access_mode=wire.PChannelAccessMode(int(channel.access)),
    )


def _ticks(wal: wire.StreamingNodeWalMetrics) -> ChannelTicks:
    info = wal.info or wire.PChannelInfo()
    channel = PChannel(PChannelName(info.name), Term(info.term), AccessMode(int(info.access_mode)))
    ticks = wal.rw or wire.StreamingNodeRwwalMetrics()
    return ChannelTicks(channel, TimeTick(ticks.mvcc_time_tick), TimeTick(ticks.recovery_time_tick))
