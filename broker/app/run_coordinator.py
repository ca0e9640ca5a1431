"""A coordinator whose nodes are other processes; with `settings.nodes` it starts them itself.

The port is open before the first node looks for it, and the nodes have ended before it closes.
"""

import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio

from actors import ActorError, SupervisorSpec, System, SystemClock
from broker.addresses import joined_address, split_address
from broker.app.actor_lookup import (
    ASSIGNER,
    BALANCER,
    CURSORS,
    ORACLE,
    REGISTRAR,
    ROOT,
    TICK_PRODUCER,
    ActorLookup,
)
from broker.app.advertised import local_host
from broker.app.broadcast_callbacks import NONE
from broker.app.led_cluster import Lead, LedCluster, coordinators_of, led_cluster
from broker.app.limits_from_settings import (
    balance_rules,
    edge_limits,
    hold_limits,
    timesync_timing,
)
from broker.app.master_wiring import master_parts, with_master
from broker.app.probes.clock_warnings import leader_clock_warnings
from broker.app.probes.http_endpoint import sources_of
from broker.app.probes.readiness import Readiness
from broker.app.running_process import (
    HAND_OFF_SHARE,
    Broker,
    lead_lost,
    process_view,
    running,
    server_facts,
    serving,
    wait_until_open,
)
from broker.app.security.certificate_names import refuse_unnamed
from broker.app.security.process_access import ProcessAccess, leading_access
from broker.app.security.secured import client_tls
from broker.app.stores.milvus_sessions import coordinator_session, milvus_sessions
from broker.app.switching.altering import stored_altering
from broker.codec.broadcast_copies import NodeCopies
from broker.codec.staged_commands import NodeStagedTxns
from broker.config import as_environment
from broker.coordinator.assignment.balancer import LiveBalance
from broker.coordinator.assignment.cluster_offsets import ClusterOffsets
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.messages import ListPChannels, NextAssignment, NodesChanged
from broker.coordinator.assignment.reconciler_timing import ReconcilerTiming
from broker.coordinator.broadcast.tree import BroadcastParts
from broker.coordinator.catalog.stored_row_schemas import StoredRowSchemas
from broker.coordinator.catalog.stored_sizes import StoredSizes
from broker.coordinator.commit.tree import BatchCommitParts
from broker.coordinator.leases.messages import CloseCluster, ProcessEnded
from broker.coordinator.tree import CoordinatorParts, coordinator_tree
from broker.core.cluster.node_leases import StartupGrace
from broker.data_folder import DataFolder
from broker.edge.roles import coordinator as coordinator_role
from broker.edge.rpc.audit.audit_trail import AuditTrail
from broker.edge.rpc.leader_gate import COORDINATOR_TERM, leader_gate
from broker.edge.server import EdgeServer
from broker.edge.tidemark.cluster_service import ClusterProxies
from broker.edge.tidemark.process_view import Coordinators
from broker.master.table.stored_table import StoredTable
from broker.master.tree import master_tree
from broker.metrics.view import CoordinatorFigures, Sources
from broker.model.channel import AccessMode, PChannelState
from broker.model.ids import NodeId, PChannelName
from broker.ports.callbacks import Callbacks
from broker.ports.nodes import NodeControl
from broker.process_settings import Settings
from broker.remote.calls import Calls
from broker.remote.node_process import Fleet, fleet_tree
from broker.remote.reached_nodes import ReachedNodes
from broker.remote.remote_node import RemoteNode
from broker.timesync.holds.ledger import HoldRule
from broker.timesync.messages import Poll
from broker.timesync.tree import TimesyncParts, timesync_tree
from broker.wal.damage_registry import DamageRegistry
from schemas.handshake import CLUSTER, SERVER_ID

ASSIGNED, READ_WRITE = PChannelState.ASSIGNED, AccessMode.READ_WRITE
COORDINATOR_ID = NodeId(0)
NODE_COMMAND = (sys.executable, "-m", "broker", "node", "--leash")


@asynccontextmanager
async def run_coordinator(
    settings: Settings,
    folder: DataFolder,
    bound: socket.socket,
    callbacks: Callbacks = NONE,
    lead: Lead | None = None,
) -> AsyncIterator[Broker]:
    """A coordinator that answers when the block begins; if it starts nodes, all channels serve.

    `bound` is used up. `callbacks`: as for `run_broker`. `lead`: what it leads with, where others
    stand by; without it, this process has the folder alone. Raises CannotStart with nothing left
    running.
    """
    if settings.nodes:
        refuse_unnamed(settings.tls_cert, local_host(bound.getsockname()[0]))
    async with led_cluster(settings, folder, bound, callbacks, lead) as cluster:
        access = await leading_access(cluster.settings.now, folder.root, cluster.store)
        parts = _CoordinatorParts(cluster.settings.now, cluster, bound, access)
        async with (
            milvus_sessions(settings, cluster.identity) as sessions,
            running(parts, settings, bound, cluster.store) as broker,
        ):
            term = cluster.store.term
            sessions.announce(coordinator_session(COORDINATOR_ID, cluster.address, term))
            yield broker


class _CoordinatorParts:
    """Coordinator, time and the fleet of node processes; see ProcessParts."""

    def __init__(
        self, settings: Settings, cluster: LedCluster, bound: socket.socket, access: ProcessAccess
    ) -> None:
        self.lookup = ActorLookup()
        self.name = "coordinator" if cluster.lead is None else cluster.lead.name
        self.address = cluster.address
        host, self._port = bound.getsockname()[:2]
        self._local_host = local_host(host)
        self.settings = cluster.settings
        self._settings = settings
        self._cluster = cluster
        self._access = access
        self._tls = client_tls(settings)
        self._nodes = LiveNodes()
        self._offsets = ClusterOffsets(self._nodes, cluster.pchannels)
        self._figures = CoordinatorFigures()
        self._staged_txns = NodeStagedTxns(self._owners)
        self._hold_rule = HoldRule(hold_limits(settings))
        self._balance = LiveBalance(balance_rules(settings), settings.balance_interval_s)
        self._fleet = Fleet(
            NODE_COMMAND,
            as_environment(self._node_settings()),
            self._process_ended,
            self._http_port_of,
            self._until_taken_over,
        )

    def spec(self) -> SupervisorSpec:
        """Time is last, because it reads the state of the others."""
        settings, cluster = self._settings, self._cluster
        broadcast = BroadcastParts(
            NodeCopies(self._owners),
            cluster.callbacks,
            settings.node_acks,
            meters=self._figures.broadcasts,
        )
        parts = CoordinatorParts(
            cluster.store,
            self._nodes,
            cluster.pchannels,
            connect=self._remote_node,
            lease_s=settings.node_lease_s,
            startup_grace=StartupGrace(
                expected=settings.nodes or settings.expected_nodes,
                grace_s=settings.gather_grace_s,
            ),
            pause_consumption=settings.pause_consumption,
            timing=ReconcilerTiming(node_lost_grace_s=settings.node_lost_grace_s),
            balance=self._balance,
            broadcast=with_master(broadcast, cluster, self.lookup),
            commits=BatchCommitParts(self._staged_txns),
            settings=self.settings,
        )
        timing = timesync_timing(settings)
        timesync = TimesyncParts(
            cluster.store,
            self._offsets,
            cluster.pchannels,
            timing,
            StoredRowSchemas(cluster.store),
            self._figures.cursors,
            self._hold_rule,
            self._figures.held,
            lambda: timesync_timing(self.settings.now).poll_s,
        )
        master = master_parts(cluster, self.lookup, self._owners, self._offsets.describe)
        children = (
            coordinator_tree(parts, ROOT),
            timesync_tree(timesync, ROOT),
            master_tree(master, ROOT),
            *self._access.children(),
        )
        return SupervisorSpec("root", children=children)

    def edge(self, system: System, readiness: Readiness, audit: AuditTrail) -> EdgeServer:
        """See ProcessParts."""
        proxy, settings = self.lookup.proxy, self._settings
        reached = ReachedNodes(self._remote_node, SystemClock().monotonic_s)
        proxies = ClusterProxies(
            proxy(REGISTRAR), proxy(ORACLE), proxy(ASSIGNER), proxy(CURSORS), self.address,
            reached.check, self._nodes.tick_refusal,
        )  # fmt: skip
        lead = self._cluster.lead
        view = process_view(
            system,
            settings,
            DamageRegistry(skipped=settings.skip_damage),
            readiness,
            (
                audit.sink.warnings,
                self._access.warnings,
                reached.warnings,
                self._nodes.warnings,
                lambda: leader_clock_warnings(system.statistics()),
                *(() if lead is None else (lead.warnings,)),
            ),
        )
        return EdgeServer(
            server_facts(settings, COORDINATOR_ID, self._cluster.identity),
            replace(
                self.lookup.proxies,
                staged_txns=self._staged_txns,
                lead=self._cluster.store,
                meta_table=StoredTable(self._cluster.store),
                access=self._access.records,
                row_schemas=StoredRowSchemas(self._cluster.store),
                sizes=StoredSizes(self._cluster.store),
                altering=stored_altering(settings, self._cluster.store, alone=False),
            ),
            view.with_coordinators(self._coordinators, self._leads),
            edge_limits(settings),
            coordinator_role(proxies, self._offsets.describe),
            audit,
            None
            if lead is None
            else leader_gate(lead.lease, tells_why=not self._access.gate.controls),
            self._access.gate,
        )

    async def until_ready(self, system: System) -> None:
        """Start the nodes of `settings.nodes`, and wait until every pchannel is open."""
        if not self._settings.nodes:
            return
        fleet_stop_s = self._settings.drain_s * HAND_OFF_SHARE
        await system.start_child(ROOT, fleet_tree(self._fleet, self._node_ids(), fleet_stop_s))
        pchannels = len(self._cluster.pchannels)
        await wait_until_open(self.lookup, pchannels, self._check_lead, self._missing)

    def reasons_against(self, system: System) -> Sequence[str]:
        """See ProcessParts."""
        lead = self._cluster.lead
        return () if lead is None else lead.reasons_against()

    def adopt(self, settings: Settings) -> None:
        """Pass them on to the nodes that this process starts: those that run, and later ones."""
        self._settings = settings
        self._hold_rule.now = hold_limits(settings)
        self._balance.rules = balance_rules(settings)
        self._balance.period_s = settings.balance_interval_s
        self.lookup.nudge(BALANCER, NodesChanged())
        self.lookup.nudge(TICK_PRODUCER, Poll())
        # Stored settings reach nodes with their leases; these here are below them.
        self._fleet.change_settings(as_environment(self._node_settings()))

    def sources(self, system: System, edge: EdgeServer) -> Sources:
        """See ProcessParts."""
        return sources_of(
            self._settings,
            system,
            edge,
            coordinator=self._figures,
            leads=self._leads,
        )

    async def hand_off(self, system: System, deadline_s: float) -> None:
        """Stop the nodes, all at once; none waits for others to take its channels over."""
        if not self._settings.nodes:
            return
        # Before they stop: otherwise the first ones would hand off channels to the last ones.
        self._tell_registrar(CloseCluster())
        self._fleet.hang_up()
        with anyio.move_on_after(deadline_s):
            try:
                await system.stop_child(f"{ROOT}/fleet")
            except ActorError:
                pass  # the fleet was never started, or has failed

    def _leads(self) -> bool:
        lead = self._cluster.lead
        return not self._cluster.store.deposed and (lead is None or lead.lease.left_s > 0)

    async def _coordinators(self) -> Coordinators:
        lead = self._cluster.lead
        if lead is None:
            return Coordinators(self.address)
        found = await coordinators_of(self.address, lead.candidates)
        return found if self._leads() else replace(found, leader="")

    def _check_lead(self) -> None:
        """Raises LeadLost. A log that cannot be opened is reported by its node's process."""
        if self._cluster.store.deposed:
            raise lead_lost(self._cluster.store)

    def _missing(self) -> Mapping[str, str]:
        """What the log says about nodes that have not registered yet."""
        there = {node.node_id for node in self._nodes.all()}
        absent = [f"node {it}" for it in self._node_ids() if it not in there]
        return {"nodes": f"{len(there)} of {self._settings.nodes}"} | (
            {"waits_for": ", ".join(absent)} if absent else {}
        )

    def _node_ids(self) -> list[NodeId]:
        first = self._settings.node_id
        return [NodeId(first + number) for number in range(self._settings.nodes)]

    async def _until_taken_over(self) -> None:
        """Wait until every channel is served, or until no node is left to serve one."""
        # Starting a process takes a processor for a second, which the new owners need first.
        seen = None
        while self._nodes.accepting() and not self._fleet.closing:
            try:
                table = await self.lookup.proxies.assigner.ask(NextAssignment(seen))
            except ActorError:
                return
            seen = seen if table is None else table.version
            if table is not None and serving(table) == self._settings.pchannels:
                return

    async def _owners(self) -> Mapping[PChannelName, NodeControl]:
        try:
            known = await self.lookup.proxies.assigner.ask(ListPChannels())
        except ActorError:
            return {}
        # A channel that is served read-only refuses appends, so its node is left out.
        written = [it for it in known if it.state is ASSIGNED and it.access is READ_WRITE]
        nodes = {it.name: self._nodes.find(it.node) for it in written}
        return {name: node for name, node in nodes.items() if node is not None}

    def _remote_node(self, node_id: NodeId, address: str, absent: Callable[[], None]) -> RemoteNode:
        host, port = split_address(address)
        if self._settings.nodes and node_id in self._node_ids():
            # The advertised address is for clients: this machine may not reach itself there.
            host = self._local_host
        # Names the process that is meant: another one may listen at this address by now.
        term = str(self._cluster.store.term)
        meant = {
            CLUSTER: self._settings.cluster,
            SERVER_ID: str(node_id),
            # So that a node that has met a newer coordinator does nothing for this one.
            COORDINATOR_TERM: term,
            **self._access.metadata,
        }
        return RemoteNode(node_id, address, Calls(host, port, meant, self._tls), absent)

    def _node_settings(self) -> Settings:
        """The settings of the node processes that this one starts, without their IDs."""
        settings = self.settings.started_with
        host, _ = split_address(settings.listen)
        return settings.model_copy(
            update={
                # Each binds a free port, and advertises the host of this process with it.
                "listen": joined_address(host, 0),
                "advertise": split_address(self.address)[0],
                "nodes": 0,
                "http_port": None,
                "coordinator": joined_address(self._local_host, self._port),
                # They stop within the time of this one.
                "drain_s": settings.drain_s * HAND_OFF_SHARE,
            }
        )

    def _http_port_of(self, node: NodeId) -> dict[str, str]:
        """The HTTP port of a node: the ports of all processes are consecutive, ours is first."""
        port = self._settings.http_port
        if not port:
            return {}
        return {"TIDEMARK_HTTP_PORT": str(port + 1 + node - self._settings.node_id)}

    def _process_ended(self, node: NodeId, pid: int) -> None:
        self._tell_registrar(ProcessEnded(node, pid))

    def _tell_registrar(self, message: CloseCluster | ProcessEnded) -> None:
        try:
            self.lookup.find(REGISTRAR).tell(message)
        except ActorError:
            pass  # the registrar notices by the lease
