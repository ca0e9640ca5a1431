"""tidemark.v1.TimeSync: cuts, and barriers to take part in and to watch.

Next: broker/node/queries/cut_channels.py
"""

from collections.abc import Mapping

import anyio
import structlog
from grpclib.const import Handler

from actors import ActorError
from broker.coordinator.assignment.messages import ListPChannels
from broker.edge.rpc.middleware import Call, Middleware
from broker.edge.rpc.proxies import Proxies, Proxy
from broker.model.barrier import BarrierKind, BarrierView
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName, TimeTick
from broker.node.directory_messages import Locate, Located
from broker.node.queries.cut_channels import cut_channels
from broker.timesync.messages import Join, LeaveBarrier, ListBarriers, NextTicks, ReportTick
from schemas.generated.tidemark import v1
from schemas.message_bytes import encoded

log = structlog.get_logger(__name__)

SERVICE = "/tidemark.v1.TimeSync/"
RETRY_PAUSE_S = 0.2


class TimeSyncService:
    """JoinBarrier, ReportTick, LeaveBarrier, WatchBarrier, ListBarriers."""

    def __init__(self, middleware: Middleware, proxies: Proxies) -> None:
        self._middleware = middleware
        self._proxies = proxies

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "JoinBarrier": middleware.unary(v1.JoinBarrierRequest, self.join),
            SERVICE + "ReportTick": middleware.unary(v1.ReportTickRequest, self.report),
            SERVICE + "LeaveBarrier": middleware.unary(v1.LeaveBarrierRequest, self.leave),
            SERVICE + "WatchBarrier": middleware.watching(v1.WatchBarrierRequest, self.watch),
            SERVICE + "ListBarriers": middleware.unary(v1.ListBarriersRequest, self.list),
        }

    async def join(self, request: v1.JoinBarrierRequest) -> v1.JoinBarrierResponse:
        """Join a barrier; see `messages.Join`."""
        kind = _kind(request.kind)
        join = Join(
            request.barrier, kind, request.peer, request.lease_ms / 1000, request.interval_ms
        )
        joined = await self._keeper(kind).ask(join)
        return v1.JoinBarrierResponse(lease_id=joined.lease_id, time_tick=joined.tick)

    async def report(self, request: v1.ReportTickRequest) -> v1.ReportTickResponse:
        """Report a tick; see `messages.ReportTick`."""
        tick = TimeTick(request.time_tick)
        report = ReportTick(request.barrier, request.peer, request.lease_id, tick)
        reported = await self._keeper(_kind(request.kind)).ask(report)
        return v1.ReportTickResponse(time_tick=reported.tick, late=reported.late)

    async def leave(self, request: v1.LeaveBarrierRequest) -> v1.LeaveBarrierResponse:
        """Leave a barrier; see `messages.LeaveBarrier`."""
        leave = LeaveBarrier(request.barrier, request.peer, request.lease_id)
        await self._keeper(_kind(request.kind)).ask(leave)
        return v1.LeaveBarrierResponse()

    async def watch(self, request: v1.WatchBarrierRequest, call: Call) -> None:
        """Stream new ticks until the watcher leaves; retries while the barrier restarts."""
        keeper = self._keeper(_kind(request.kind))
        after = TimeTick(request.after_tick)
        while True:
            try:
                news = await keeper.ask(NextTicks(request.barrier, after))
            except ActorError as error:
                log.warning(
                    "barrier not available, retrying", barrier=request.barrier, error=str(error)
                )
                await anyio.sleep(RETRY_PAUSE_S)
                continue
            if news is not None:
                # Kept here: a restarted keeper is asked from where this watcher is.
                after = news.ticks[-1]
                response = v1.WatchBarrierResponse(
                    time_ticks=list(news.ticks), barrier=_encoded(news.view)
                )
                await call.stream.write_batch([encoded(response)])

    async def list(self, _: v1.ListBarriersRequest) -> v1.ListBarriersResponse:
        """All barriers, soft ones first."""
        keepers = (self._proxies.soft_barrier, self._proxies.hard_barrier)
        found = [await keeper.ask(ListBarriers()) for keeper in keepers]
        return v1.ListBarriersResponse(
            barriers=[_encoded(view) for views in found for view in views]
        )

    def _keeper(self, kind: BarrierKind) -> Proxy:
        soft, hard = self._proxies.soft_barrier, self._proxies.hard_barrier
        return soft if kind is BarrierKind.SOFT else hard


class CutService:
    """Cut.

    `everywhere`: this process serves all pchannels of the cluster, so it waits for one that is not
    open now; a node of several refuses it.
    """

    def __init__(self, middleware: Middleware, proxies: Proxies, *, everywhere: bool) -> None:
        self._middleware = middleware
        self._proxies = proxies
        self._everywhere = everywhere

    def __mapping__(self) -> Mapping[str, Handler]:
        return {SERVICE + "Cut": self._middleware.unary(v1.CutRequest, self.cut)}

    async def cut(self, request: v1.CutRequest) -> v1.CutResponse:
        """Cut channels; see `cut_channels`."""
        tick = TimeTick(request.time_tick)
        found = await cut_channels(self._locate, self._is_known, request.channels, tick)
        return v1.CutResponse(
            time_tick=found.tick,
            ends=[v1.CutEnd(channel=name, end_id=found.ends[name]) for name in request.channels],
        )

    async def _locate(self, name: PChannelName) -> Located:
        return await self._proxies.directory.demand(Locate(name, None))

    async def _is_known(self, name: PChannelName) -> bool:
        if not self._everywhere:
            return False
        known = await self._proxies.assigner.ask(ListPChannels())
        return any(it.name == name for it in known)


def _kind(number: int) -> BarrierKind:
    try:
        return BarrierKind(number)
    except ValueError as error:
        kinds = ", ".join(f"{kind.name} ({kind.value})" for kind in BarrierKind)
        cause = f"barrier kind {int(number)} is not known; use {kinds}"
        raise Refused(StreamingCode.INVALID_ARGUMENT, cause) from error


def _encoded(view: BarrierView) -> v1.BarrierInfo:
    return v1.BarrierInfo(
        name=view.name,
        kind=v1.BarrierKind(int(view.kind)),
        time_tick=view.tick,
        peers=[
            v1.BarrierPeer(name=it.name, time_tick=it.tick, silent=it.silent) for it in view.peers
        ],
        waits_for=list(view.waits_for),
        removed=list(view.removed),
    )
