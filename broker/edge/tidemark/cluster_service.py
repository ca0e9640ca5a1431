"""tidemark.v1.Cluster: what node processes tell their coordinator, and get from it.

Owns the translation only.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from grpclib.const import Handler

from actors import ActorError
from broker.coordinator.assignment.messages import ChannelClosed, NodeOpenedChannel
from broker.coordinator.leases.messages import LeaveCluster, RegisterNode, RenewLease
from broker.coordinator.time.messages import Reserve
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.model.failure import invalid_argument
from broker.model.ids import NodeId, PChannelName, Term
from broker.ports.nodes import NodeLease
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.Cluster/"
ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class ClusterProxies:
    """The actors that nodes are given answers by."""

    registrar: Proxy
    oracle: Proxy
    assigner: Proxy


class ClusterService:
    """Register, Renew, Leave, ReserveTicks, ReportChannels."""

    def __init__(self, middleware: Middleware, proxies: ClusterProxies) -> None:
        self._middleware = middleware
        self._proxies = proxies

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Register": middleware.unary(v1.RegisterRequest, self.register),
            SERVICE + "Renew": middleware.unary(v1.RenewRequest, self.renew),
            SERVICE + "Leave": middleware.unary(v1.LeaveRequest, self.leave, while_draining=True),
            SERVICE + "ReserveTicks": middleware.unary(
                v1.ReserveTicksRequest, self.reserve_ticks, while_draining=True
            ),
            SERVICE + "ReportChannels": middleware.unary(v1.ReportChannelsRequest, self.report),
        }

    async def register(self, request: v1.RegisterRequest) -> v1.Lease:
        """INVALID_ARGUMENT for what names no node; see `RegisterNode` for the rest."""
        node = _node(request.node_id)
        host, _, port = request.address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise invalid_argument(f"node {node}: address {request.address!r} is not HOST:PORT")
        message = RegisterNode(
            node, request.address, request.pid, request.incarnation, request.cluster_id
        )
        return _encoded(await self._proxies.registrar.ask(message, deadline_s=ASK_S))

    async def renew(self, request: v1.RenewRequest) -> v1.Lease:
        """See `RenewLease`."""
        message = RenewLease(_node(request.node_id), request.session, request.stopping)
        return _encoded(await self._proxies.registrar.ask(message, deadline_s=ASK_S))

    async def leave(self, request: v1.LeaveRequest) -> v1.LeaveResponse:
        """See `LeaveCluster`."""
        message = LeaveCluster(_node(request.node_id), request.session)
        await self._proxies.registrar.ask(message, deadline_s=ASK_S)
        return v1.LeaveResponse()

    async def reserve_ticks(self, request: v1.ReserveTicksRequest) -> v1.ReserveTicksResponse:
        """See `TickSource`."""
        ticks = await self._proxies.oracle.ask(Reserve(request.count), deadline_s=ASK_S)
        return v1.ReserveTicksResponse(first=ticks.first, count=ticks.count)

    async def report(self, request: v1.ReportChannelsRequest) -> v1.ReportChannelsResponse:
        """In order. What is about an older term, or another node's channel, does nothing."""
        node = _node(request.node_id)
        for event in request.events:
            if not event.name or event.term <= 0:
                raise invalid_argument(f"{event.name!r} at term {event.term} is no channel")
            kind = NodeOpenedChannel if event.serves else ChannelClosed
            try:
                self._proxies.assigner.tell(kind(node, PChannelName(event.name), Term(event.term)))
            except ActorError:
                continue  # it looks for itself when it is back
        return v1.ReportChannelsResponse()


def _encoded(lease: NodeLease) -> v1.Lease:
    return v1.Lease(
        session=lease.session,
        lease_ms=round(lease.lease_s * 1000),
        moving=lease.moving,
        consumption_paused=lease.consumption_paused,
    )


def _node(number: int) -> NodeId:
    if number <= 0:
        raise invalid_argument(f"node id {number} is not positive")
    return NodeId(number)
