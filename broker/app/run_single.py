"""One broker in one process: coordinator, one node, and the port before both.

Owns the order of starts and stops of a whole broker. What can go wrong at a start is one sentence,
`CannotStart`.
"""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio

from actors import ActorError, SupervisorSpec, System
from broker.app.callback_setting import NONE, named_callbacks
from broker.app.listening import address_of
from broker.app.metrics_port import metrics_served, sources_of
from broker.app.part_limits import edge_limits, node_limits, timesync_timing
from broker.app.paths import ASSIGNER, DIRECTORY, ORACLE, ROOT, Found
from broker.app.running import EDGE_SHARE, TREE_SHARE, Broker, facts, inside, wait_until_open
from broker.app.start_failures import CannotStart
from broker.app.storage import found, metadata, of_damage, segmented_wal
from broker.codec.broadcast_copies import NodeCopies
from broker.codec.staged_votes import NodeStagedTxns
from broker.codec.stored_headers import StoredHeaders
from broker.config import Settings
from broker.coordinator.assignment.assigner_notifier import AssignerNotifier
from broker.coordinator.assignment.consumption import consumption_paused
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.stored_terms import StoredTerms
from broker.coordinator.broadcast.broadcast_meters import BroadcastMeters
from broker.coordinator.broadcast.tree import BroadcastParts
from broker.coordinator.catalog.stored_row_schemas import StoredRowSchemas
from broker.coordinator.commit.tree import CommitsParts
from broker.coordinator.leases.leadership import LedStore
from broker.coordinator.time.oracle import OracleTicks
from broker.coordinator.tree import CoordinatorParts, coordinator_tree
from broker.core.naming import pchannel_names
from broker.data_folder import DataFolder
from broker.edge.server import EdgeServer
from broker.meta.stored_recovery import StoredRecovery
from broker.model.channel import AccessMode
from broker.model.ids import NodeId, PChannelName
from broker.node.control import LocalNode
from broker.node.directory_messages import Drain
from broker.node.node_closed_ticks import LocalClosedTicks
from broker.node.state.node_runtime import NodePorts, NodeRuntime, node_runtime
from broker.node.tree import node_spec
from broker.ports.callbacks import Callbacks
from broker.ports.meta import MetaStore
from broker.ports.nodes import NodeControl
from broker.ports.row_schemas import NoRowSchemas, RowSchemas
from broker.ports.staged_txns import NoStagedTxns, StagedTxns
from broker.process_memory import ProcessMemory
from broker.timesync.tree import TimesyncParts, timesync_tree
from broker.wal.damage_registry import DamageRegistry
from broker.wal.watched import WatchedWal


@asynccontextmanager
async def run_broker(
    settings: Settings,
    folder: DataFolder,
    bound: socket.socket,
    callbacks: Callbacks = NONE,
) -> AsyncIterator[Broker]:
    """A broker that serves when the block begins, and has stopped when it ends.

    `bound` is used up. `callbacks`: what finishes a broadcast, by message type, besides those that
    the settings name. Raises CannotStart with nothing left running.
    """
    callbacks = {**named_callbacks(settings.callbacks), **callbacks}
    async with metadata(folder) as store:
        pchannels = pchannel_names(settings.cluster, settings.pchannels)
        led = await found(store, pchannels, streaming=settings.streaming)
        address = settings.advertise or address_of(bound)
        tree = _Tree(settings, folder, address, callbacks)
        spec = tree.spec(led, pchannels)
        tree.runtime.pause.on |= await consumption_paused(led)
        tree.found.system = system = System(spec, stop_deadline_s=settings.drain_s * TREE_SHARE)
        async with system:
            edge = tree.edge(system, led)
            await edge.start_on(bound)
            try:
                await wait_until_open(tree.found, len(pchannels), tree.check_logs)
                damages, broadcasts = tree.damages.found, tree.broadcasts
                sources = sources_of(system, edge, tree.runtime, damages, broadcasts)
                async with metrics_served(sources, settings.metrics_port) as url:
                    yield Broker(address, system, edge, url, led)
            finally:
                drain(tree.found)
                with anyio.CancelScope(shield=True):
                    await edge.stop(deadline_s=settings.drain_s * EDGE_SHARE)


def drain(found: Found) -> None:
    """Have the node refuse new callers; it may be gone already."""
    try:
        found.proxies.directory.tell(Drain())
    except ActorError:
        pass


class _Tree:
    """Builds the parts of one process."""

    def __init__(
        self, settings: Settings, folder: DataFolder, address: str, callbacks: Callbacks
    ) -> None:
        self._callbacks = callbacks
        self.broadcasts = BroadcastMeters()
        self._settings = settings
        self._folder = folder
        self._address = address
        self.damages = DamageRegistry(skipped=settings.skip_damage)
        self._wal = WatchedWal(segmented_wal(settings, folder, self.damages))
        self._node_id = NodeId(settings.node_id)
        self.runtime: NodeRuntime
        self.found = Found()
        self._row_schemas: RowSchemas = NoRowSchemas()
        self._staged_txns: StagedTxns = NoStagedTxns()

    def spec(self, store: MetaStore, pchannels: tuple[PChannelName, ...]) -> SupervisorSpec:
        """The coordinator needs the oracle first and the node last; so does a restart."""
        self._row_schemas = StoredRowSchemas(store)
        find = self.found.find
        node = LocalNode(self._node_id, self._address, lambda: find(DIRECTORY))

        async def owned() -> Mapping[PChannelName, NodeControl]:
            return {name: node for name in pchannels if not self._is_read_only(name)}

        self._staged_txns = staged = NodeStagedTxns(owned)
        broadcast = BroadcastParts(
            NodeCopies(owned), self._callbacks, self._settings.node_acks, meters=self.broadcasts
        )
        coordinator_parts = CoordinatorParts(
            store,
            LiveNodes([node]),
            pchannels,
            pause_consumption=self._settings.pause_consumption,
            broadcast=broadcast,
            commits=CommitsParts(staged),
        )
        coordinator = coordinator_tree(coordinator_parts, ROOT)
        ports = NodePorts(
            wal=self._wal,
            terms=StoredTerms(store, self._node_id),
            ticks=OracleTicks(find, ORACLE),
            observer=AssignerNotifier(find, ASSIGNER),
            headers=StoredHeaders(),
            recovery=StoredRecovery(store),
            memory=ProcessMemory(),
        )
        runtime = self.runtime = node_runtime(self._node_id, ports, node_limits(self._settings))
        source = LocalClosedTicks(pchannels, lambda: find(DIRECTORY))
        timing = timesync_timing(self._settings)
        timesync = timesync_tree(TimesyncParts(store, source, pchannels, timing), ROOT)
        return SupervisorSpec("root", children=(coordinator, node_spec(runtime), timesync))

    def edge(self, system: System, led: LedStore) -> EdgeServer:
        """The services over the tree."""
        told = facts(self._settings, self._node_id)
        seen = inside(system, self._settings, self.damages)
        proxies = replace(
            self.found.proxies,
            row_schemas=self._row_schemas,
            staged_txns=self._staged_txns,
            lead=led,
        )
        return EdgeServer(told, proxies, seen, edge_limits(self._settings))

    def _is_read_only(self, name: PChannelName) -> bool:
        found = self.runtime.open_channels.find(name)
        return found is not None and found.channel.access is AccessMode.READ_ONLY

    def check_logs(self) -> None:
        """CannotStart when a log is damaged."""
        unreadable = self._wal.unreadable
        if unreadable is not None:
            raise CannotStart(of_damage(self._folder.log, unreadable)) from unreadable
