"""tidemark.v1.Cluster: node processes register, renew leases, reserve ticks and report channels."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from grpclib.const import Handler

from actors import ActorError
from broker.codec.held_logs import decode_removal, decode_start, encode_hold
from broker.coordinator.assignment.messages import ChannelClosed, NodeOpenedChannel
from broker.coordinator.leases.messages import LeaveCluster, RegisterNode, RenewLease
from broker.coordinator.time.messages import Reserve
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.model.failure import Refusal, Refused, invalid_argument
from broker.model.ids import NodeId, PChannelName, Term
from broker.model.master.live_config import StoredSettings
from broker.ports.nodes import NodeLease
from broker.timesync.messages import AllowRemovals, FindHolds
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.Cluster/"
ASK_S = 5.0


async def _unchecked(_node: NodeId, _address: str) -> None:
    """Whoever joins is reached."""


def _never_over(_node: NodeId, _session: int) -> Refusal | None:
    """No session ends."""
    return None


@dataclass(frozen=True, slots=True)
class ClusterProxies:
    """The actors that answer nodes. `address`: of this coordinator, as clients reach it.

    `reach` calls a node at the address that it advertises, and raises Refused. `tick_refusal`: why
    a node gets no ticks in a session.
    """

    registrar: Proxy
    oracle: Proxy
    assigner: Proxy
    cursors: Proxy
    address: str = ""
    reach: Callable[[NodeId, str], Awaitable[None]] = _unchecked
    tick_refusal: Callable[[NodeId, int], Refusal | None] = _never_over


class ClusterService:
    """Register, Renew, Leave, ReserveTicks, ReportChannels, FindHolds, AllowRemovals."""

    def __init__(self, middleware: Middleware, proxies: ClusterProxies) -> None:
        self._middleware = middleware
        self._proxies = proxies

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Register": middleware.unary(v1.RegisterRequest, self.register),
            SERVICE + "Renew": middleware.unary(v1.RenewRequest, self.renew),
            # While draining too: nodes may stop with this coordinator. They end their leases, and
            # their last appends need ticks.
            SERVICE + "Leave": middleware.unary(v1.LeaveRequest, self.leave, while_draining=True),
            SERVICE + "ReserveTicks": middleware.unary(
                v1.ReserveTicksRequest, self.reserve_ticks, while_draining=True
            ),
            SERVICE + "ReportChannels": middleware.unary(v1.ReportChannelsRequest, self.report),
            SERVICE + "FindHolds": middleware.unary(v1.FindHoldsRequest, self.find_holds),
            SERVICE + "AllowRemovals": middleware.unary(v1.AllowRemovalsRequest, self.allow),
        }

    async def register(self, request: v1.RegisterRequest) -> v1.Lease:
        """Register a node that can be reached; see `RegisterNode`.

        INVALID_ARGUMENT for a bad id or address, IGNORED_OPERATION for one that leads elsewhere.
        """
        node = _node(request.node_id)
        host, _, port = request.address.rpartition(":")
        if not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65536:
            raise invalid_argument(f"node {node}: address {request.address!r} is not HOST:PORT")
        # Not by the Registrar, whose leases must not wait for it.
        await self._proxies.reach(node, request.address)
        message = RegisterNode(
            node,
            request.address,
            request.pid,
            request.incarnation,
            request.cluster_id,
            request.settings_revision,
            request.knows_places,
        )
        return self._encoded(await self._proxies.registrar.ask(message, deadline_s=ASK_S))

    async def renew(self, request: v1.RenewRequest) -> v1.Lease:
        """Renew a lease; see `RenewLease`."""
        node, revision = _node(request.node_id), request.settings_revision
        message = RenewLease(node, request.session, request.stopping, revision)
        return self._encoded(await self._proxies.registrar.ask(message, deadline_s=ASK_S))

    async def leave(self, request: v1.LeaveRequest) -> v1.LeaveResponse:
        """End a lease; see `LeaveCluster`."""
        message = LeaveCluster(_node(request.node_id), request.session)
        await self._proxies.registrar.ask(message, deadline_s=ASK_S)
        return v1.LeaveResponse()

    async def reserve_ticks(self, request: v1.ReserveTicksRequest) -> v1.ReserveTicksResponse:
        """Reserve ticks; see `TickSource`. IGNORED_OPERATION for a session that is over."""
        ticks = await self._proxies.oracle.ask(Reserve(request.count), deadline_s=ASK_S)
        # After the oracle's answer: the session may end while it waits, and then the next owners
        # may have smaller ticks than these. A node of an earlier release does not say who it is.
        if request.node_id:
            refusal = self._proxies.tick_refusal(_node(request.node_id), request.session)
            if refusal is not None:
                raise Refused(refusal.code, refusal.cause)
        return v1.ReserveTicksResponse(first=ticks.first, count=ticks.count)

    async def report(self, request: v1.ReportChannelsRequest) -> v1.ReportChannelsResponse:
        """Report events in order; those of older terms, or other nodes' channels, are ignored."""
        node = _node(request.node_id)
        for event in request.events:
            if not event.name or event.term <= 0:
                raise invalid_argument(
                    f"event about channel {event.name!r} at term {event.term}: name or term missing"
                )
            name, term = PChannelName(event.name), Term(event.term)
            news = (
                NodeOpenedChannel(node, name, term)
                if event.serves
                else ChannelClosed(node, name, term, reopens=not event.released)
            )
            try:
                self._proxies.assigner.tell(news)
            except ActorError:
                continue  # the Assigner looks at all nodes itself when it has restarted
        return v1.ReportChannelsResponse()

    async def find_holds(self, request: v1.FindHoldsRequest) -> v1.FindHoldsResponse:
        """Who holds what of some pchannels; see `FindHolds`."""
        starts = {PChannelName(it.pchannel): decode_start(it) for it in request.starts}
        found = await self._proxies.cursors.ask(FindHolds(starts), deadline_s=ASK_S)
        return v1.FindHoldsResponse(
            holds=[encode_hold(name, it) for name, holds in found.items() for it in holds]
        )

    async def allow(self, request: v1.AllowRemovalsRequest) -> v1.AllowRemovalsResponse:
        """Record what will be removed. INVALID_ARGUMENT for an unknown kind of holder."""
        try:
            removals = {PChannelName(it.pchannel): decode_removal(it) for it in request.removals}
        except ValueError as error:
            raise invalid_argument(f"a removal cannot be read: {error}") from error
        allowed = await self._proxies.cursors.ask(AllowRemovals(removals), deadline_s=ASK_S)
        return v1.AllowRemovalsResponse(pchannels=[*allowed])

    def _encoded(self, lease: NodeLease) -> v1.Lease:
        return v1.Lease(
            session=lease.session,
            lease_ms=round(lease.lease_s * 1000),
            moving=lease.moving,
            consumption_paused=lease.consumption_paused,
            coordinator=self._proxies.address,
            settings=_settings(lease.settings),
        )


def _settings(stored: StoredSettings | None) -> v1.StoredSettings | None:
    if stored is None:
        return None
    return v1.StoredSettings(revision=stored.revision, values=dict(stored.values))


def _node(number: int) -> NodeId:
    if number <= 0:
        raise invalid_argument(f"node id {number} is not a positive number")
    return NodeId(number)
