"""A coordinator whose nodes are other processes; with `settings.nodes` it starts them, too.

Owns the order of starts and stops: the port is open before the first node looks for it, and nodes
are gone before it closes.
"""

import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio

from actors import ActorError, SupervisorSpec, System
from broker.app.callback_setting import NONE, named_callbacks
from broker.app.listening import address_of
from broker.app.metrics_port import metrics_served, sources_of
from broker.app.part_limits import balance_rules, edge_limits, timesync_timing
from broker.app.paths import ASSIGNER, ORACLE, REGISTRAR, ROOT, Found
from broker.app.running import (
    EDGE_SHARE,
    TREE_SHARE,
    Broker,
    facts,
    inside,
    lead_lost,
    serving,
    wait_until_open,
)
from broker.app.storage import found, metadata
from broker.codec.broadcast_copies import NodeCopies
from broker.codec.staged_votes import NodeStagedTxns
from broker.config import Settings, as_environment, split_address
from broker.coordinator.assignment.channel_reconciler import ReconcilerTiming
from broker.coordinator.assignment.cluster_offsets import ClusterOffsets
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import ListPChannels, NextAssignment
from broker.coordinator.broadcast.broadcast_meters import BroadcastMeters
from broker.coordinator.broadcast.tree import BroadcastParts
from broker.coordinator.commit.tree import CommitsParts
from broker.coordinator.leases.leadership import LedStore
from broker.coordinator.leases.messages import CloseCluster, ProcessEnded
from broker.coordinator.tree import CoordinatorParts, coordinator_tree
from broker.core.cluster.node_leases import StartupGrace
from broker.core.naming import pchannel_names
from broker.data_folder import DataFolder
from broker.edge.roles import coordinator as coordinator_role
from broker.edge.server import EdgeServer
from broker.edge.tidemark.cluster_service import ClusterProxies
from broker.model.channel import AccessMode, PChannelState
from broker.model.ids import NodeId, PChannelName
from broker.ports.callbacks import Callbacks
from broker.ports.meta import MetaStore
from broker.ports.nodes import NodeControl
from broker.remote.calls import Calls
from broker.remote.node_process import Fleet, fleet_tree
from broker.remote.remote_node import RemoteNode
from broker.timesync.tree import TimesyncParts, timesync_tree
from broker.wal.damage_registry import DamageRegistry

ASSIGNED, READ_WRITE = PChannelState.ASSIGNED, AccessMode.READ_WRITE
COORDINATOR_ID = NodeId(0)
FLEET_SHARE = 0.5
"""Of the time a stop has: what the node processes get of it."""


@asynccontextmanager
async def run_coordinator(
    settings: Settings, folder: DataFolder, bound: socket.socket, callbacks: Callbacks = NONE
) -> AsyncIterator[Broker]:
    """A coordinator that answers when the block begins; with nodes of its own, all channels serve.

    `bound` is used up. `callbacks`: as for `run_broker`. Raises CannotStart with nothing left
    running.
    """
    callbacks = {**named_callbacks(settings.callbacks), **callbacks}
    async with metadata(folder) as store:
        pchannels = pchannel_names(settings.cluster, settings.pchannels)
        led = await found(store, pchannels, streaming=settings.streaming)
        address = settings.advertise or address_of(bound)
        tree = _Tree(settings, address, callbacks)
        spec = tree.spec(led, pchannels)
        tree.found.system = system = System(spec, stop_deadline_s=settings.drain_s * TREE_SHARE)
        async with system:
            edge = tree.edge(system, led)
            await edge.start_on(bound)
            try:
                if settings.nodes:
                    await system.start_child(ROOT, tree.fleet_spec())
                    check, missing = partial(_check_lead, led), tree.missing
                    await wait_until_open(tree.found, len(pchannels), check, missing)
                sources = sources_of(system, edge, broadcasts=tree.broadcasts)
                async with metrics_served(sources, settings.metrics_port) as url:
                    yield Broker(address, system, edge, url, led)
            finally:
                with anyio.CancelScope(shield=True):
                    await tree.stop_nodes(system)
                    await edge.stop(deadline_s=settings.drain_s * EDGE_SHARE)


def _check_lead(led: LedStore) -> None:
    """LeadLost. A log that cannot be opened is told by the node process that tried."""
    if led.deposed:
        raise lead_lost(led)


class _Tree:
    """Builds the parts of one process."""

    def __init__(self, settings: Settings, address: str, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self.broadcasts = BroadcastMeters()
        self._settings = settings
        self._address = address
        self._nodes = LiveNodes()
        self._staged_txns = NodeStagedTxns(self._owners)
        told = as_environment(self._of_nodes())
        self._fleet = Fleet(self._command(), told, self._ended, self._of_one_node, self._taken_over)
        self.found = Found()

    def spec(self, store: MetaStore, pchannels: tuple[PChannelName, ...]) -> SupervisorSpec:
        """Time comes last: it looks at what the others do."""
        settings = self._settings
        parts = CoordinatorParts(
            store,
            self._nodes,
            pchannels,
            connect=self._reach,
            lease_s=settings.node_lease_s,
            startup_grace=StartupGrace(
                expected=settings.nodes or settings.expected_nodes,
                grace_s=settings.gather_grace_s,
            ),
            pause_consumption=settings.pause_consumption,
            timing=ReconcilerTiming(node_lost_grace_s=settings.node_lost_grace_s),
            rules=balance_rules(settings),
            balance_s=settings.balance_interval_s,
            broadcast=BroadcastParts(
                NodeCopies(self._owners),
                self._callbacks,
                settings.node_acks,
                meters=self.broadcasts,
            ),
            commits=CommitsParts(self._staged_txns),
        )
        self._offsets = ClusterOffsets(self._nodes, pchannels)
        timesync = TimesyncParts(store, self._offsets, pchannels, timesync_timing(settings))
        children = (coordinator_tree(parts, ROOT), timesync_tree(timesync, ROOT))
        return SupervisorSpec("root", children=children)

    def edge(self, system: System, led: LedStore) -> EdgeServer:
        """The services over the tree."""
        proxy = self.found.proxy
        cluster = ClusterProxies(proxy(REGISTRAR), proxy(ORACLE), proxy(ASSIGNER))
        return EdgeServer(
            facts(self._settings, COORDINATOR_ID),
            replace(self.found.proxies, staged_txns=self._staged_txns, lead=led),
            inside(system, self._settings, DamageRegistry(skipped=self._settings.skip_damage)),
            edge_limits(self._settings),
            coordinator_role(cluster, self._offsets.describe),
        )

    def missing(self) -> Mapping[str, str]:
        """How many nodes are there, for who waits for all of them."""
        there = {node.node_id for node in self._nodes.all()}
        absent = [f"node {it}" for it in self._node_ids() if it not in there]
        return {"nodes": f"{len(there)} of {self._settings.nodes}"} | (
            {"waits_for": ", ".join(absent)} if absent else {}
        )

    def fleet_spec(self) -> SupervisorSpec:
        """The node processes."""
        return fleet_tree(self._fleet, self._node_ids(), self._settings.drain_s * FLEET_SHARE)

    def _node_ids(self) -> list[NodeId]:
        first = self._settings.node_id
        return [NodeId(first + number) for number in range(self._settings.nodes)]

    async def stop_nodes(self, system: System) -> None:
        """All at once, and none of them is waited for any more to give its channels away."""
        if not self._settings.nodes:
            return
        self._tell_registrar(CloseCluster())
        self._fleet.hang_up()
        with anyio.move_on_after(self._settings.drain_s * FLEET_SHARE):
            try:
                await system.stop_child(f"{ROOT}/fleet")
            except ActorError:
                pass

    async def _taken_over(self) -> None:
        """Until every channel is served, or there is no node to serve it."""
        seen = None
        while self._nodes.accepting() and not self._fleet.closing:
            try:
                table = await self.found.proxies.assigner.ask(NextAssignment(seen))
            except ActorError:
                return
            seen = seen if table is None else table.version
            if table is not None and serving(table) == self._settings.pchannels:
                return

    async def _owners(self) -> Mapping[PChannelName, NodeControl]:
        try:
            known = await self.found.proxies.assigner.ask(ListPChannels())
        except ActorError:
            return {}
        written = [it for it in known if it.state is ASSIGNED and it.access is READ_WRITE]
        nodes = {it.name: self._nodes.find(it.node) for it in written}
        return {name: node for name, node in nodes.items() if node is not None}

    def _reach(self, node_id: NodeId, address: str, absent: Callable[[], None]) -> RemoteNode:
        host, port = split_address(address)
        meant = {"cluster": self._settings.cluster, "server-id": str(node_id)}
        return RemoteNode(node_id, address, Calls(host, port, meant), absent)

    def _of_nodes(self) -> Settings:
        """What a node process of ours is told, besides its id."""
        settings = self._settings
        host, _ = split_address(settings.listen)
        return settings.model_copy(
            update={
                "listen": f"[{host}]:0" if ":" in host else f"{host}:0",
                "advertise": "",
                "nodes": 0,
                "metrics_port": None,
                "coordinator": self._address,
                "drain_s": settings.drain_s * FLEET_SHARE,
            }
        )

    def _of_one_node(self, node: NodeId) -> dict[str, str]:
        """The metrics of the processes stand on ports in a row, ours first."""
        port = self._settings.metrics_port
        if not port:
            return {}
        return {"TIDEMARK_METRICS_PORT": str(port + 1 + node - self._settings.node_id)}

    def _command(self) -> tuple[str, ...]:
        return (sys.executable, "-m", "broker", "node", "--leash")

    def _ended(self, node: NodeId, pid: int) -> None:
        self._tell_registrar(ProcessEnded(node, pid))

    def _tell_registrar(self, message: CloseCluster | ProcessEnded) -> None:
        try:
            self.found.find(REGISTRAR).tell(message)
        except ActorError:
            pass  # it will notice by the leases
