"""One broker in one process: coordinator, one node, and the port in front of both."""

import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from actors import SupervisorSpec, System
from broker.app.actor_lookup import (
    ASSIGNER,
    CURSORS,
    DIRECTORY,
    ORACLE,
    ROOT,
    TICK_PRODUCER,
    ActorLookup,
)
from broker.app.broadcast_callbacks import NONE
from broker.app.led_cluster import LedCluster, led_cluster
from broker.app.limits_from_settings import (
    edge_limits,
    hold_limits,
    node_limits,
    retention,
    timesync_timing,
)
from broker.app.master_wiring import master_parts, with_master
from broker.app.node_wiring import node_ports, refuse_new_callers
from broker.app.probes.http_endpoint import sources_of
from broker.app.probes.readiness import Readiness
from broker.app.process_errors import CannotStart
from broker.app.running_process import (
    Broker,
    process_view,
    running,
    server_facts,
    wait_until_open,
)
from broker.app.security.process_access import ProcessAccess, leading_access
from broker.app.storage import LogStorage, disk_reserve, log_storage, unreadable_log
from broker.app.stores.milvus_sessions import coordinator_session, milvus_sessions, node_session
from broker.app.switching.altering import stored_altering
from broker.codec.broadcast_copies import NodeCopies
from broker.codec.staged_commands import NodeStagedTxns
from broker.coordinator.assignment.assigner_notifier import AssignerNotifier
from broker.coordinator.assignment.cluster_offsets import ClusterOffsets
from broker.coordinator.assignment.consumption import consumption_paused
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.broadcast.tree import BroadcastParts
from broker.coordinator.catalog.stored_row_schemas import StoredRowSchemas
from broker.coordinator.catalog.stored_sizes import StoredSizes
from broker.coordinator.commit.tree import BatchCommitParts
from broker.coordinator.time.oracle import OracleTicks
from broker.coordinator.tree import CoordinatorParts, coordinator_tree
from broker.data_folder import DataFolder
from broker.edge.rpc.audit.audit_trail import AuditTrail
from broker.edge.server import EdgeServer
from broker.master.table.stored_table import StoredTable
from broker.master.tree import master_tree
from broker.metrics.view import CoordinatorFigures, Sources
from broker.model.channel import AccessMode
from broker.model.ids import NodeId, PChannelName
from broker.node.control import LocalNode
from broker.node.node_closed_ticks import LocalClosedTicks
from broker.node.state.node_runtime import NodeRuntime, node_runtime
from broker.node.tree import node_spec
from broker.ports.callbacks import Callbacks
from broker.ports.nodes import NodeControl
from broker.process_settings import Settings
from broker.timesync.holds.asked_holds import AskedHolds
from broker.timesync.holds.ledger import HoldRule
from broker.timesync.messages import Poll
from broker.timesync.tree import TimesyncParts, timesync_tree


@asynccontextmanager
async def run_broker(
    settings: Settings, folder: DataFolder, bound: socket.socket, callbacks: Callbacks = NONE
) -> AsyncIterator[Broker]:
    """A broker that serves when the block begins, and has stopped when it ends.

    `bound` is used up. `callbacks`: async functions that finish broadcasts, by message type; they
    come on top of those that the settings name. Raises CannotStart with nothing left running.
    """
    async with led_cluster(settings, folder, bound, callbacks) as cluster:
        paused = await consumption_paused(cluster.store)
        now = cluster.settings.now
        access = await leading_access(now, folder.root, cluster.store)
        async with log_storage(now, folder, cluster.identity, cluster.store) as storage:
            parts = _BrokerParts(now, storage, cluster, access, paused=paused)
            async with (
                milvus_sessions(settings, cluster.identity) as sessions,
                running(parts, settings, bound, cluster.store) as broker,
            ):
                number, address = settings.node_id, cluster.address
                sessions.announce(coordinator_session(number, address, cluster.store.term))
                sessions.announce(node_session(number, address, cluster.store.term))
                yield broker


class _BrokerParts:
    """Coordinator, node and time of one process; see ProcessParts."""

    def __init__(
        self,
        settings: Settings,
        storage: LogStorage,
        cluster: LedCluster,
        access: ProcessAccess,
        *,
        paused: bool,
    ) -> None:
        self.lookup = ActorLookup()
        self.name = "single"
        self.address = cluster.address
        self.settings = cluster.settings
        self._settings = settings
        self._storage = storage
        self._folder, self._wal, self._damages = storage.folder, storage.wal, storage.damages
        self._cluster = cluster
        self._access = access
        self._node_id = NodeId(settings.node_id)
        self._figures = CoordinatorFigures()
        self._staged_txns = NodeStagedTxns(self._owners)
        self._hold_rule = HoldRule(hold_limits(settings))
        self._runtime = self._node_runtime()
        # This node gets no lease, which would tell it that consumption is paused.
        self._runtime.pause.on |= paused

    def spec(self) -> SupervisorSpec:
        """The coordinator needs the oracle first and the node last; so does a restart."""
        store, pchannels, settings = self._cluster.store, self._cluster.pchannels, self._settings
        broadcast = BroadcastParts(
            NodeCopies(self._owners),
            self._cluster.callbacks,
            settings.node_acks,
            meters=self._figures.broadcasts,
        )
        coordinator = CoordinatorParts(
            store,
            LiveNodes([self._node()]),
            pchannels,
            pause_consumption=settings.pause_consumption,
            broadcast=with_master(broadcast, self._cluster, self.lookup),
            commits=BatchCommitParts(self._staged_txns),
            settings=self.settings,
        )
        closed = LocalClosedTicks(pchannels, lambda: self.lookup.find(DIRECTORY))
        timesync = TimesyncParts(
            store,
            closed,
            pchannels,
            timesync_timing(settings),
            StoredRowSchemas(store),
            self._figures.cursors,
            self._hold_rule,
            self._figures.held,
            lambda: timesync_timing(self.settings.now).poll_s,
        )
        offsets = ClusterOffsets(LiveNodes([self._node()]), pchannels)
        master = master_parts(self._cluster, self.lookup, self._owners, offsets.describe)
        children = (
            coordinator_tree(coordinator, ROOT),
            node_spec(self._runtime),
            timesync_tree(timesync, ROOT),
            master_tree(master, ROOT),
            *self._access.children(),
        )
        return SupervisorSpec("root", children=children)

    def edge(self, system: System, readiness: Readiness, audit: AuditTrail) -> EdgeServer:
        """See ProcessParts."""
        proxies = replace(
            self.lookup.proxies,
            row_schemas=StoredRowSchemas(self._cluster.store),
            sizes=StoredSizes(self._cluster.store),
            staged_txns=self._staged_txns,
            lead=self._cluster.store,
            meta_table=StoredTable(self._cluster.store),
            access=self._access.records,
            altering=stored_altering(self._settings, self._cluster.store, alone=True),
        )
        return EdgeServer(
            server_facts(self._settings, self._node_id, self._cluster.identity),
            proxies,
            process_view(
                system,
                self._settings,
                self._damages,
                readiness,
                (audit.sink.warnings, self._access.warnings),
                self._runtime,
            ),
            edge_limits(self._settings),
            audit=audit,
            access=self._access.gate,
        )

    async def until_ready(self, system: System) -> None:
        """Until every pchannel is open. Raises CannotStart, at once when a log is unreadable."""
        await wait_until_open(self.lookup, len(self._cluster.pchannels), self._check_logs)

    def reasons_against(self, system: System) -> Sequence[str]:
        """See ProcessParts."""
        return ()

    def adopt(self, settings: Settings) -> None:
        """See ProcessParts."""
        self._hold_rule.now = hold_limits(settings)
        self._runtime.adopt(node_limits(settings))
        self._runtime.retention.adopt(retention(settings), settings.hold_bytes_max)
        self.lookup.nudge(TICK_PRODUCER, Poll())

    def sources(self, system: System, edge: EdgeServer) -> Sources:
        """See ProcessParts."""
        return sources_of(
            self._settings,
            system,
            edge,
            self._runtime,
            damages=self._damages.found,
            coordinator=self._figures,
        )

    async def hand_off(self, system: System, deadline_s: float) -> None:
        """There is no other node: only refuse new callers."""
        refuse_new_callers(self.lookup)

    def _node_runtime(self) -> NodeRuntime:
        ticks = OracleTicks(self.lookup.find, ORACLE)
        observer = AssignerNotifier(self.lookup.find, ASSIGNER)
        ports = replace(
            node_ports(self._cluster.store, self._node_id, self._wal, ticks, observer),
            holds=AskedHolds(self.lookup.find, CURSORS),
            room=disk_reserve(self._settings, self._folder),
            switch=self._storage.switch,
        )
        return node_runtime(self._node_id, ports, node_limits(self._settings))

    def _node(self) -> LocalNode:
        return LocalNode(self._node_id, self.address, lambda: self.lookup.find(DIRECTORY))

    async def _owners(self) -> Mapping[PChannelName, NodeControl]:
        node = self._node()
        return {name: node for name in self._cluster.pchannels if not self._is_read_only(name)}

    def _is_read_only(self, name: PChannelName) -> bool:
        found = self._runtime.open_channels.find(name)
        return found is not None and found.channel.access is AccessMode.READ_ONLY

    def _check_logs(self) -> None:
        """Raises CannotStart when a log is damaged."""
        unreadable = self._wal.unreadable
        if unreadable is not None:
            raise CannotStart(unreadable_log(self._folder.log, unreadable)) from unreadable
