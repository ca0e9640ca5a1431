"""tidemark.v1.Master: the time tick producer."""

from collections.abc import Mapping

from grpclib.const import Handler

from broker.core.master.tick_leg import POLICIES
from broker.edge.master.allocation_service import SERVICE
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxies, Proxy
from broker.master.time_ticks.messages import CloseTicks, DescribeTicks, ReportPeerTick, SetTicks
from broker.model.failure import invalid_argument
from broker.model.ids import TimeTick
from broker.model.master.time_ticks import TickOrigin, TickPolicy, TickSettings, TimeTicksView
from schemas.generated.tidemark import v1


class TimeTicksService:
    """SetTimeTicks, CloseTimeTicks, DescribeTimeTicks, ReportTimeTick."""

    def __init__(self, middleware: Middleware, proxies: Proxies) -> None:
        self._middleware = middleware
        self._collectors: dict[TickOrigin, Proxy] = {
            TickOrigin.PROXIES: proxies.proxy_ticks,
            TickOrigin.WRITE_NODES: proxies.write_node_ticks,
        }

    def __mapping__(self) -> Mapping[str, Handler]:
        unary = self._middleware.unary
        return {
            SERVICE + "SetTimeTicks": unary(v1.SetTimeTicksRequest, self.set),
            SERVICE + "CloseTimeTicks": unary(v1.CloseTimeTicksRequest, self.close),
            SERVICE + "DescribeTimeTicks": unary(v1.DescribeTimeTicksRequest, self.describe),
            SERVICE + "ReportTimeTick": unary(v1.ReportTimeTickRequest, self.report),
        }

    async def set(self, request: v1.SetTimeTicksRequest) -> v1.TimeTicks:
        """See `messages.SetTicks`."""
        origin = _origin(request.source)
        settings = TickSettings(
            tuple(request.peer_ids),
            tuple(request.channels),
            _policy(origin, request.rule),
            request.interval_ms,
        )
        return _encoded(await self._collectors[origin].ask(SetTicks(settings)))

    async def close(self, request: v1.CloseTimeTicksRequest) -> v1.TimeTicks:
        """See `messages.CloseTicks`."""
        return _encoded(await self._collectors[_origin(request.source)].ask(CloseTicks()))

    async def describe(self, request: v1.DescribeTimeTicksRequest) -> v1.TimeTicks:
        """See `messages.DescribeTicks`."""
        return _encoded(await self._collectors[_origin(request.source)].ask(DescribeTicks()))

    async def report(self, request: v1.ReportTimeTickRequest) -> v1.ReportTimeTickResponse:
        """See `messages.ReportPeerTick`."""
        report = ReportPeerTick(request.peer_id, TimeTick(request.time_tick))
        reported = await self._collectors[_origin(request.source)].ask(report)
        return v1.ReportTimeTickResponse(passed_tick=reported.passed, late=reported.late)


def _origin(number: int) -> TickOrigin:
    try:
        return TickOrigin(number)
    except ValueError as error:
        known = ", ".join(f"{it.name} ({it.value})" for it in TickOrigin)
        cause = f"source {int(number)} of time ticks is not known; use {known}"
        raise invalid_argument(cause) from error


def _policy(origin: TickOrigin, number: int) -> TickPolicy:
    if not number:
        return POLICIES[origin][0]
    try:
        return TickPolicy(number)
    except ValueError as error:
        known = ", ".join(f"{it.name} ({it.value})" for it in TickPolicy)
        raise invalid_argument(f"rule {int(number)} is not known; use {known}") from error


def _encoded(view: TimeTicksView) -> v1.TimeTicks:
    found = v1.TimeTicks(
        source=v1.TickSource(int(view.origin)),
        open=view.settings is not None,
        peers=[v1.TickPeer(id=it.peer, time_tick=it.tick) for it in view.reports],
        passed_tick=view.passed,
        sent_tick=view.sent,
        waits_for=list(view.waits_for),
        error=view.error,
        waiting=view.waiting,
        skipped=view.skipped,
    )
    if view.settings is not None:
        found.channels = list(view.settings.channels)
        found.rule = v1.TickRule(int(view.settings.policy))
        found.interval_ms = view.settings.interval_ms
    return found
