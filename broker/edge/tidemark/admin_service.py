"""tidemark.v1.Admin: health, actors and channels, and the few switches of operators."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import anyio
import structlog
from grpclib.const import Handler

from actors import ActorError, ActorStatistics
from broker.codec.held_logs import encode_holder, encode_passed
from broker.coordinator.assignment.messages import (
    ListPChannels,
    NextAssignment,
    PauseConsumers,
    RaiseStreaming,
)
from broker.coordinator.catalog.messages import all_collections
from broker.core.cluster.actor_kinds import PAUSED
from broker.core.cluster.assignment import PChannelMeta
from broker.core.naming import pchannel_of
from broker.edge.milvus.state_service import ServerState
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxies
from broker.edge.tidemark.channel_troubles import channel_troubles
from broker.edge.tidemark.kill_actor import kill_actor
from broker.edge.tidemark.process_view import ProcessView
from broker.model.channel import AccessMode, ChannelOffsets, PChannelState
from broker.model.damage import Damage
from broker.model.failure import Refusal, Refused
from broker.model.ids import NodeId, PChannelName
from broker.model.retention.holders import HeldBack
from broker.model.traffic import VChannelTraffic
from broker.node.directory_messages import CollectStatus, PauseConsumption
from broker.timesync.messages import ShowHeldBack
from schemas.generated.tidemark import v1

log = structlog.get_logger(__name__)

SERVICE = "/tidemark.v1.Admin/"
HELD_BACK_S = 2.0
CLASHES_S = 2.0
CLASHES_MAX = 100

DescribeAll = Callable[[], Awaitable[Mapping[PChannelName, ChannelOffsets]]]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts about a server that do not change while it runs."""

    version: str
    node_id: NodeId
    cluster: str
    wal_name: str
    data: str
    pid: int
    started_ms: int
    cluster_id: str = ""


class AdminService:
    """Health, Actors, Channels, Kill, PauseConsumption, Streaming, Traffic."""

    def __init__(
        self,
        middleware: Middleware,
        facts: ServerFacts,
        proxies: Proxies,
        state: Callable[[], ServerState],
        view: ProcessView,
        offsets: DescribeAll | None = None,
    ) -> None:
        """`offsets` describes the cluster's channels; by default, those of this process."""
        self._middleware = middleware
        self._facts = facts
        self._proxies = proxies
        self._state = state
        self._view = view
        self._offsets = offsets or self._offsets_here

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Health": middleware.unary(
                v1.HealthRequest, self.health, while_draining=True, ungated=True
            ),
            SERVICE + "Actors": middleware.unary(v1.ActorsRequest, self.actors),
            SERVICE + "Channels": middleware.unary(v1.ChannelsRequest, self.channels),
            SERVICE + "Kill": middleware.unary(v1.KillRequest, self.kill),
            SERVICE + "PauseConsumption": middleware.unary(v1.PauseConsumptionRequest, self.pause),
            SERVICE + "Streaming": middleware.unary(v1.StreamingRequest, self.streaming),
            SERVICE + "Traffic": middleware.unary(v1.TrafficRequest, self.traffic),
        }

    async def health(self, _: v1.HealthRequest) -> v1.HealthResponse:
        """The state; `degraded` while a pchannel is not served, takes no appends, or is damaged,
        and in a leader that may not answer now."""
        facts, state, view = self._facts, self._state(), self._view
        known = await self._known()
        held = await self._held_back()
        statistics = view.tree.statistics()
        troubled = channel_troubles(known, statistics)
        damages = view.damages()
        coordinators = await view.coordinators()
        # Records that were skipped are lost, but nobody fails on them any more.
        unreadable = any(not damage.skipped for damage in damages)
        if state is ServerState.HEALTHY and (troubled or unreadable or not view.leads()):
            state = ServerState.DEGRADED
        return v1.HealthResponse(
            state=state.value,
            version=facts.version,
            node_id=facts.node_id,
            cluster=facts.cluster,
            wal_name=facts.wal_name,
            data=facts.data,
            pid=facts.pid,
            started_ms=facts.started_ms,
            channels_open=len(known) - len(troubled),
            channels_total=len(known),
            troubles=troubled,
            damages=[_damage(damage) for damage in damages],
            damages_unlisted=view.damages_unlisted(),
            consumption_paused=any(entry.extra.get(PAUSED) for entry in statistics),
            cluster_id=facts.cluster_id,
            holders=[encode_holder(name, it) for name, of in held.items() for it in of.holders],
            passed=[encode_passed(name, it) for name, of in held.items() for it in of.passed],
            warnings=[*view.warnings()],
            clashes=[*await self._clashes()],
            leader=coordinators.leader,
            standbys=sorted(coordinators.standbys),
        )

    async def actors(self, request: v1.ActorsRequest) -> v1.ActorsResponse:
        """The live actors at and below a path, parents before children."""
        top = request.path.rstrip("/")
        found = [
            entry
            for entry in self._view.tree.statistics()
            if entry.path == top or entry.path.startswith(f"{top}/")
        ]
        return v1.ActorsResponse(
            actors=[_actor(entry) for entry in sorted(found, key=lambda entry: entry.path)]
        )

    async def kill(self, request: v1.KillRequest) -> v1.KillResponse:
        """Kill one actor, where the server allows it."""
        term = kill_actor(self._view, request.path, request.term)
        log.warning("actor killed on request", actor=request.path, killed_term=term)
        return v1.KillResponse(term=term)

    async def channels(self, _: v1.ChannelsRequest) -> v1.ChannelsResponse:
        """All pchannels of the cluster, served or not."""
        known = await self._proxies.assigner.ask(ListPChannels())
        described = await self._offsets()
        table = await self._proxies.assigner.ask(NextAssignment())
        host = table.control_host if table else ""
        addresses = {node.node_id: node.address for node in table.nodes} if table else {}
        vchannels = await self._vchannels()
        held = await self._held_back()
        return v1.ChannelsResponse(
            channels=[
                _channel(
                    entry,
                    described.get(entry.name),
                    addresses.get(entry.node, "") if entry.node is not None else "",
                    vchannels[entry.name],
                    entry.name == host,
                    held.get(entry.name, HeldBack()),
                )
                for entry in known
            ]
        )

    async def pause(self, request: v1.PauseConsumptionRequest) -> v1.PauseConsumptionResponse:
        """Record whether consumption is paused, and tell every node."""
        await self._proxies.consumption.ask(PauseConsumers(request.paused))
        return v1.PauseConsumptionResponse()

    async def streaming(self, request: v1.StreamingRequest) -> v1.StreamingResponse:
        """Raise the streaming version, see `RaiseStreaming`; channels follow within moments."""
        version = await self._proxies.assigner.ask(RaiseStreaming(request.at_least))
        return v1.StreamingResponse(version=version)

    async def traffic(self, _: v1.TrafficRequest) -> v1.TrafficResponse:
        """What this process has counted of each vchannel."""
        facts = self._facts
        return v1.TrafficResponse(
            process=f"{facts.node_id}/{facts.pid}/{facts.started_ms}",
            at_ms=int(anyio.current_time() * 1000),
            vchannels=[_traffic(it) for it in self._view.traffic()],
        )

    async def _known(self) -> Sequence[PChannelMeta]:
        return await self._proxies.assigner.ask(ListPChannels())

    async def _held_back(self) -> Mapping[PChannelName, HeldBack]:
        try:
            return await self._proxies.cursors.ask(ShowHeldBack(), deadline_s=HELD_BACK_S)
        except (ActorError, Refused):
            return {}  # the rest of the answer matters more

    async def _clashes(self) -> Sequence[str]:
        try:
            async with asyncio.timeout(CLASHES_S):
                found = await self._proxies.meta_table.clashes(limit=CLASHES_MAX)
                return [it.cause for it in found]
        except (Refused, TimeoutError):
            return ()  # as above

    async def _offsets_here(self) -> Mapping[PChannelName, ChannelOffsets]:
        status = await self._proxies.directory.ask(CollectStatus())
        served = () if isinstance(status, Refusal) else status.channels
        return {each.channel.name: each.offsets for each in served}

    async def _vchannels(self) -> dict[PChannelName, list[str]]:
        by_pchannel: dict[PChannelName, list[str]] = defaultdict(list)
        for collection in await all_collections(self._proxies.catalog.ask):
            for vchannel in collection.vchannels:
                by_pchannel[pchannel_of(vchannel)].append(vchannel)
        return by_pchannel


class StandbyAdminService(AdminService):
    """Health of a coordinator that stands by."""

    def __mapping__(self) -> Mapping[str, Handler]:
        return {SERVICE + "Health": super().__mapping__()[SERVICE + "Health"]}

    async def _held_back(self) -> Mapping[PChannelName, HeldBack]:
        return {}  # the leader knows

    async def _clashes(self) -> Sequence[str]:
        return ()  # as above

    async def _known(self) -> Sequence[PChannelMeta]:
        return ()  # as above


class NodeAdminService(AdminService):
    """Health, Actors, Kill, PauseConsumption and Traffic of a process that is a node only."""

    def __mapping__(self) -> Mapping[str, Handler]:
        return {
            path: handler
            for path, handler in super().__mapping__().items()
            if path not in (SERVICE + "Channels", SERVICE + "Streaming")
        }

    async def pause(self, request: v1.PauseConsumptionRequest) -> v1.PauseConsumptionResponse:
        """Pause or resume this node, until its coordinator says otherwise."""
        await self._proxies.directory.ask(PauseConsumption(request.paused))
        return v1.PauseConsumptionResponse()

    async def _held_back(self) -> Mapping[PChannelName, HeldBack]:
        return {}  # its coordinator knows

    async def _clashes(self) -> Sequence[str]:
        return ()  # as above

    async def _known(self) -> Sequence[PChannelMeta]:
        node, served = self._facts.node_id, await self._offsets()
        return [
            PChannelMeta(it.name, it.term, PChannelState.ASSIGNED, node) for it in served.values()
        ]


def _channel(
    entry: PChannelMeta,
    offsets: ChannelOffsets | None,
    address: str,
    vchannels: list[str],
    is_control_host: bool,
    held: HeldBack,
) -> v1.ChannelInfo:
    info = v1.ChannelInfo(
        name=entry.name,
        term=entry.term,
        state=entry.state.name.lower(),
        node_id=entry.node or 0,
        address=address,
        vchannels=vchannels,
        is_control_host=is_control_host,
        read_only=entry.access is AccessMode.READ_ONLY,
        holders=[encode_holder(entry.name, it) for it in held.holders],
        passed=[encode_passed(entry.name, it) for it in held.passed],
    )
    if offsets is not None:
        info.first_id, info.next_id = offsets.first_id, offsets.next_id
        info.closed_tick, info.size_bytes = offsets.closed_tick, offsets.size_bytes
        info.last_confirmed_id = offsets.last_confirmed_id
        info.open_txns, info.open_txn_bytes = offsets.open_txns, offsets.open_txn_bytes
        info.prepared_txns = offsets.prepared_txns
        info.growing_segments = offsets.segments.growing
        info.growing_bytes = offsets.segments.growing_bytes
        info.sealed_segments = offsets.segments.sealed
        if offsets.checkpoint is not None:
            info.checkpoint_id = offsets.checkpoint.id
            info.checkpoint_tick = offsets.checkpoint.tick
    return info


def _traffic(counts: VChannelTraffic) -> v1.VchannelTraffic:
    return v1.VchannelTraffic(
        vchannel=counts.vchannel,
        serial=counts.serial,
        messages=counts.messages,
        bytes=counts.bytes,
        delivered=counts.delivered,
        delivered_bytes=counts.delivered_bytes,
    )


def _damage(damage: Damage) -> v1.Damage:
    return v1.Damage(
        pchannel=damage.pchannel,
        file=damage.file,
        offset=damage.offset,
        reason=damage.reason,
        skipped=damage.skipped,
        times=damage.times,
    )


def _actor(entry: ActorStatistics) -> v1.ActorInfo:
    extra = {key: str(value) for key, value in entry.extra.items()}
    if entry.shed:
        extra["shed"] = str(entry.shed)
    if entry.last_error:
        extra["last_error"] = entry.last_error
    return v1.ActorInfo(
        path=entry.path,
        term=entry.term,
        kind=entry.kind,
        state=entry.state,
        mailbox_depth=entry.mailbox_depth,
        mailbox_bound=entry.mailbox_bound,
        restarts=entry.restarts,
        handled=entry.handled,
        extra=extra,
    )
