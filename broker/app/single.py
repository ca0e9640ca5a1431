"""One broker in one process: coordinator, one node, and the port before both.

Owns the order of starts and stops of a whole broker. What can go wrong at a start is one sentence,
`CannotStart`. Next: broker/edge/server.py
"""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import structlog

from actors import ActorError, Ref, SupervisorSpec, System, SystemClock
from broker.app.bounds import edge_limits, node_limits, timesync_timing
from broker.app.failures import CannotStart
from broker.app.listening import address_of
from broker.app.logs import program_version
from broker.app.measuring import metrics_served, sources_of
from broker.app.storage import found, metadata, of_damage, segmented_wal
from broker.config import Settings
from broker.coordinator.broadcast_tree import BroadcastParts
from broker.coordinator.messages import NextAssignment
from broker.coordinator.observer import NodeNews
from broker.coordinator.oracle import OracleTicks
from broker.coordinator.terms import StoredTerms
from broker.coordinator.tree import CoordinatorParts, coordinator_tree
from broker.core.naming import pchannel_names
from broker.data_folder import DataFolder
from broker.edge.admin_service import ServerFacts
from broker.edge.broadcast_copies import LocalCopies
from broker.edge.inside import Inside
from broker.edge.reach import Reach, Reaches
from broker.edge.server import EdgeServer
from broker.edge.stored_headers import StoredHeaders
from broker.meta.recovery import StoredRecovery
from broker.meta.sqlite import SqliteMetaStore
from broker.model.channel import Assignment, AssignmentVersion
from broker.model.ids import NodeId, PChannelName
from broker.node.closed_ticks import LocalClosedTicks
from broker.node.control import LocalNode
from broker.node.messages import Drain
from broker.node.parts import NodeParts, NodePorts, node_parts
from broker.node.tree import node_spec
from broker.ports.callbacks import Callbacks
from broker.process_memory import ProcessMemory
from broker.timesync.tree import TimesyncParts, timesync_tree
from broker.wal.damages import Damages
from broker.wal.watched import WatchedWal

OPEN_S_MAX = 600.0
"""Recovery of all logs; the port answers meanwhile, so clients wait rather than fail."""
EDGE_SHARE = 0.5
TREE_SHARE = 0.25
"""Of the time a stop has; the tree may need its share twice, to stop in order and to be killed."""
ROOT = "/root"
ORACLE = f"{ROOT}/coordinator/oracle"
ASSIGNER = f"{ROOT}/coordinator/assigner"
CATALOG = f"{ROOT}/coordinator/catalog"
DIRECTORY = f"{ROOT}/node/directory"
SOFT_BARRIER = f"{ROOT}/timesync/soft_barrier"
HARD_BARRIER = f"{ROOT}/timesync/hard_barrier"
BROADCASTER = f"{ROOT}/coordinator/broadcaster/locks"
NO_CALLBACKS: Callbacks = {}

log = structlog.get_logger("tidemark")


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker. `address` is what clients are told; `metrics`, "" without, a URL."""

    address: str
    system: System
    edge: EdgeServer
    metrics: str = ""


@asynccontextmanager
async def run_broker(
    settings: Settings,
    folder: DataFolder,
    bound: socket.socket,
    callbacks: Callbacks = NO_CALLBACKS,
) -> AsyncIterator[Broker]:
    """A broker that serves when the block begins, and has stopped when it ends.

    `bound` is used up. `callbacks`: what finishes a broadcast, by message type. Raises CannotStart
    with nothing left running.
    """
    async with metadata(folder) as store:
        pchannels = pchannel_names(settings.cluster, settings.pchannels)
        await found(store, pchannels)
        address = settings.advertise or address_of(bound)
        tree = _Tree(settings, folder, address, callbacks)
        spec = tree.spec(store, pchannels)
        tree.system = system = System(spec, stop_deadline_s=settings.drain_s * TREE_SHARE)
        async with system:
            edge = tree.edge(system)
            await edge.start_on(bound)
            try:
                await tree.wait_until_open(len(pchannels))
                sources = sources_of(system, tree.parts, edge, tree.damages.found)
                async with metrics_served(sources, settings.metrics_port) as url:
                    yield Broker(address, system, edge, url)
            finally:
                tree.drain()
                with anyio.CancelScope(shield=True):
                    await edge.stop(deadline_s=settings.drain_s * EDGE_SHARE)


class _Tree:
    """Builds the parts of one process; they find each other by path once `system` is set."""

    def __init__(
        self, settings: Settings, folder: DataFolder, address: str, callbacks: Callbacks
    ) -> None:
        self._callbacks = callbacks
        self._settings = settings
        self._folder = folder
        self._address = address
        self.damages = Damages(skipped=settings.skip_damage)
        self.wal = WatchedWal(segmented_wal(settings, folder, self.damages))
        self._node_id = NodeId(settings.node_id)
        self.system: System | None = None
        self.parts: NodeParts
        self.reaches = Reaches(
            directory=Reach(lambda: self._find(DIRECTORY)),
            assigner=Reach(lambda: self._find(ASSIGNER)),
            catalog=Reach(lambda: self._find(CATALOG)),
            soft_barrier=Reach(lambda: self._find(SOFT_BARRIER)),
            hard_barrier=Reach(lambda: self._find(HARD_BARRIER)),
            broadcaster=Reach(lambda: self._find(BROADCASTER)),
        )

    def spec(self, store: SqliteMetaStore, pchannels: tuple[PChannelName, ...]) -> SupervisorSpec:
        """The coordinator needs the oracle first and the node last; so does a restart."""
        node = LocalNode(self._node_id, self._address, lambda: self._find(DIRECTORY))
        broadcast = BroadcastParts(
            LocalCopies(self.reaches.directory), self._callbacks, self._settings.node_acks
        )
        coordinator = coordinator_tree(
            CoordinatorParts(store, (node,), pchannels, broadcast=broadcast), ROOT
        )
        ports = NodePorts(
            wal=self.wal,
            terms=StoredTerms(store, self._node_id),
            ticks=OracleTicks(self._find, ORACLE),
            observer=NodeNews(self._find, ASSIGNER),
            headers=StoredHeaders(),
            recovery=StoredRecovery(store),
            memory=ProcessMemory(),
        )
        parts = self.parts = node_parts(self._node_id, ports, node_limits(self._settings))
        source = LocalClosedTicks(pchannels, lambda: self._find(DIRECTORY))
        timing = timesync_timing(self._settings)
        timesync = timesync_tree(TimesyncParts(source, pchannels, timing), ROOT)
        return SupervisorSpec("root", children=(coordinator, node_spec(parts), timesync))

    def drain(self) -> None:
        """Have the node refuse new callers; it may be gone already."""
        try:
            self.reaches.directory.tell(Drain())
        except ActorError:
            pass

    def edge(self, system: System) -> EdgeServer:
        """The services over the tree."""
        facts = ServerFacts(
            version=program_version(),
            node_id=self._node_id,
            cluster=self._settings.cluster,
            wal_name="rocksmq",
            data=str(self._settings.data_dir),
            pid=os.getpid(),
            started_ms=SystemClock().wall_ms(),
        )
        inside = Inside(
            tree=system,
            chaos_allowed=self._settings.allow_chaos,
            damages=self.damages.found,
            damages_unlisted=lambda: self.damages.unnamed,
        )
        return EdgeServer(facts, self.reaches, inside, edge_limits(self._settings))

    async def wait_until_open(self, pchannels: int) -> None:
        """Until every pchannel has an owner that serves.

        CannotStart when that takes too long, or when no time would help because a log is damaged.
        """
        seen = None
        with anyio.move_on_after(OPEN_S_MAX):
            while True:
                table = await self._next_table(seen)
                if self.wal.unreadable is not None:
                    cause = of_damage(self._folder.log, self.wal.unreadable)
                    raise CannotStart(cause) from self.wal.unreadable
                if table is None:
                    continue
                seen = table.version
                if sum(len(node.channels) for node in table.nodes) == pchannels:
                    return
        cause = f"not every pchannel could be opened within {OPEN_S_MAX:.0f} s; see the log"
        raise CannotStart(cause)

    async def _next_table(self, seen: AssignmentVersion | None) -> Assignment | None:
        """None while the coordinator waits for its store; raises when the tree has given up."""
        try:
            return await self.reaches.assigner.ask(NextAssignment(seen))
        except ActorError as error:
            self._find(ROOT)
            log.warning("still starting", waits_for=str(error))
            return None

    def _find(self, path: str) -> Ref[Any]:
        assert self.system is not None, path
        return self.system.find(path)
