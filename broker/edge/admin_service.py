"""tidemark.v1.Admin: what the server is doing, for people and their tools.

Owns the joining of what node, coordinator and actor runtime say. Changes nothing.
Next: broker/edge/state.py
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from grpclib.const import Handler

from actors import ActorStatistics
from broker.coordinator.messages import ListCollections, ListPChannels, NextAssignment
from broker.core.assignment import PChannelMeta
from broker.core.naming import pchannel_of
from broker.edge.gate import Gate
from broker.edge.reach import Reaches
from broker.edge.state import ServerState
from broker.model.channel import ChannelOffsets, PChannelState
from broker.model.ids import NodeId, PChannelName
from broker.node.appender import REFUSING
from broker.node.messages import Describe
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.Admin/"


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What does not change while a server runs."""

    version: str
    node_id: NodeId
    cluster: str
    wal_name: str
    data: str
    pid: int
    started_ms: int


class AdminService:
    """Health, Actors, Channels."""

    def __init__(
        self,
        gate: Gate,
        facts: ServerFacts,
        reaches: Reaches,
        state: Callable[[], ServerState],
        statistics: Callable[[], Sequence[ActorStatistics]],
    ) -> None:
        self._gate = gate
        self._facts = facts
        self._reaches = reaches
        self._state = state
        self._statistics = statistics

    def __mapping__(self) -> Mapping[str, Handler]:
        gate = self._gate
        return {
            SERVICE + "Health": gate.unary(v1.HealthRequest, self.health, while_draining=True),
            SERVICE + "Actors": gate.unary(v1.ActorsRequest, self.actors),
            SERVICE + "Channels": gate.unary(v1.ChannelsRequest, self.channels),
        }

    async def health(self, _: v1.HealthRequest) -> v1.HealthResponse:
        """`degraded` while some pchannel of the cluster is not served, or takes no appends."""
        facts, state = self._facts, self._state()
        known = await self._reaches.assigner.ask(ListPChannels())
        refusing = sum(entry.extra.get("state") == REFUSING for entry in self._statistics())
        assigned = sum(entry.state is PChannelState.ASSIGNED for entry in known)
        open_now = max(0, assigned - refusing)
        if state is ServerState.HEALTHY and open_now < len(known):
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
            channels_open=open_now,
            channels_total=len(known),
        )

    async def actors(self, _: v1.ActorsRequest) -> v1.ActorsResponse:
        """The live tree, parents before children."""
        found = sorted(self._statistics(), key=lambda entry: entry.path)
        return v1.ActorsResponse(actors=[_actor(entry) for entry in found])

    async def channels(self, _: v1.ChannelsRequest) -> v1.ChannelsResponse:
        """Every pchannel of the cluster, served or not."""
        known = await self._reaches.assigner.ask(ListPChannels())
        names = tuple(entry.name for entry in known)
        described = await self._reaches.directory.ask(Describe(names))
        table = await self._reaches.assigner.ask(NextAssignment())
        host = table.control_host if table else ""
        addresses = {node.node_id: node.address for node in table.nodes} if table else {}
        vchannels = await self._vchannels()
        return v1.ChannelsResponse(
            channels=[
                _channel(
                    entry,
                    offsets if isinstance(offsets, ChannelOffsets) else None,
                    addresses.get(entry.node, "") if entry.node is not None else "",
                    vchannels[entry.name],
                    entry.name == host,
                )
                for entry, offsets in zip(known, described, strict=True)
            ]
        )

    async def _vchannels(self) -> dict[PChannelName, list[str]]:
        by_pchannel: dict[PChannelName, list[str]] = defaultdict(list)
        for collection in await self._reaches.catalog.ask(ListCollections()):
            for vchannel in collection.vchannels:
                by_pchannel[pchannel_of(vchannel)].append(vchannel)
        return by_pchannel


def _channel(
    entry: PChannelMeta,
    offsets: ChannelOffsets | None,
    address: str,
    vchannels: list[str],
    is_control_host: bool,
) -> v1.ChannelInfo:
    info = v1.ChannelInfo(
        name=entry.name,
        term=entry.term,
        state=entry.state.name.lower(),
        node_id=entry.node or 0,
        address=address,
        vchannels=vchannels,
        is_control_host=is_control_host,
    )
    if offsets is not None:
        info.first_id, info.next_id = offsets.first_id, offsets.next_id
        info.closed_tick, info.size_bytes = offsets.closed_tick, offsets.size_bytes
    return info


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
