"""A node whose coordinator is another process.

Owns the order of starts and stops: the port is open before the coordinator hears of it, and what
the node serves is given to others, where there are any, before it closes.
"""

import os
import random
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import structlog

from actors import ActorError, ChildSpec, MailboxSpec, Overflow, SupervisorSpec, System
from broker.app.listening import address_of
from broker.app.metrics_port import metrics_served, sources_of
from broker.app.part_limits import edge_limits, node_limits
from broker.app.paths import DIRECTORY, MEMBERSHIP, NEWS, Found
from broker.app.run_single import drain
from broker.app.running import EDGE_SHARE, TREE_SHARE, Broker, facts, inside
from broker.app.start_failures import CannotStart
from broker.app.storage import metadata, segmented_wal
from broker.codec.stored_headers import StoredHeaders
from broker.config import Settings, split_address
from broker.coordinator.assignment.founding import known_cluster
from broker.coordinator.assignment.stored_terms import StoredTerms
from broker.coordinator.catalog.stored_row_schemas import StoredRowSchemas
from broker.data_folder import DataFolder
from broker.edge.roles import node as node_role
from broker.edge.server import EdgeServer
from broker.meta.sqlite import SqliteMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import NodeId
from broker.node.membership.cluster_join import ClusterJoin
from broker.node.membership.membership import Membership, Retire
from broker.node.state.node_runtime import NodePorts, NodeRuntime, node_runtime
from broker.node.tree import node_spec
from broker.ports.meta import MetaError
from broker.ports.row_schemas import NoRowSchemas, RowSchemas
from broker.process_memory import ProcessMemory
from broker.remote.calls import Calls
from broker.remote.news import News, SentNews
from broker.remote.remote_coordinator import RemoteEnrolment, RemoteTicks
from broker.wal.damage_registry import DamageRegistry

FOUNDED_S_MAX = 30.0
FOUNDED_POLL_S = 0.2
MOVE_SHARE = 0.5
"""Of the time a stop has: waiting for others to take the channels over."""

log = structlog.get_logger("tidemark")


@asynccontextmanager
async def run_node(
    settings: Settings, folder: DataFolder, bound: socket.socket
) -> AsyncIterator[Broker]:
    """A node of its cluster when the block begins; it has left when the block ends.

    `bound` is used up. Waits a while for a coordinator that is not there. Raises CannotStart with
    nothing left running.
    """
    async with metadata(folder) as store:
        identity = await _identity(store, settings)
        tree = _Tree(settings, folder, settings.advertise or address_of(bound))
        try:
            spec = tree.spec(store, identity)
            system = System(spec, stop_deadline_s=settings.drain_s * TREE_SHARE)
            tree.found.system = system
            async with system:
                edge = tree.edge(system)
                await edge.start_on(bound)
                try:
                    refusal = await tree.join.wait()
                    if refusal is not None:
                        raise CannotStart(_why_not(settings, refusal))
                    sources = sources_of(system, edge, tree.runtime, tree.damages.found)
                    async with metrics_served(sources, settings.metrics_port) as url:
                        yield Broker(tree.address, system, edge, url)
                finally:
                    with anyio.CancelScope(shield=True):
                        await tree.give_away(settings.drain_s * MOVE_SHARE)
                        drain(tree.found)
                        await edge.stop(deadline_s=settings.drain_s * EDGE_SHARE)
        finally:
            tree.calls.close()


def _why_not(settings: Settings, refusal: Refusal) -> str:
    """What was refused says what to do; an answer that never came does not."""
    if refusal.code in (StreamingCode.INVALID_ARGUMENT, StreamingCode.RESOURCE_ACQUIRED):
        return refusal.cause
    return (
        f"no coordinator took this node within {settings.coordinator_wait_s:g} s: {refusal.cause};"
        " pass --coordinator HOST:PORT as `tidemark coordinator` prints it, or wait longer with"
        " TIDEMARK_COORDINATOR_WAIT_S"
    )


async def _identity(store: SqliteMetaStore, settings: Settings) -> str:
    """Of the cluster; a node founds none."""
    waiting = False
    with anyio.move_on_after(FOUNDED_S_MAX):
        while True:
            try:
                cluster = await known_cluster(store)
            except MetaError as error:
                raise CannotStart(str(error)) from error
            if cluster is not None and cluster.identity:
                return cluster.identity
            if not waiting:
                log.warning(
                    "no coordinator has begun this data folder yet: waiting for one",
                    data=str(settings.data_dir),
                    seconds_max=FOUNDED_S_MAX,
                )
            waiting = True
            await anyio.sleep(FOUNDED_POLL_S)
    raise CannotStart(
        f"there is no cluster in data folder {settings.data_dir}; start `tidemark coordinator` on"
        " it first, or pass the coordinator's --data-dir"
    )


class _Tree:
    """Builds the parts of one process."""

    def __init__(self, settings: Settings, folder: DataFolder, address: str) -> None:
        self._settings = settings
        self._folder = folder
        self._node_id = NodeId(settings.node_id)
        host, port = split_address(settings.coordinator)
        self.calls = Calls(host, port, {"cluster": settings.cluster})
        self.address = address
        self.damages = DamageRegistry(skipped=settings.skip_damage)
        self.join = ClusterJoin(settings.node_lease_s, settings.coordinator_wait_s)
        self.runtime: NodeRuntime
        self.found = Found()
        self._row_schemas: RowSchemas = NoRowSchemas()

    def spec(self, store: SqliteMetaStore, identity: str) -> SupervisorSpec:
        """Membership comes last: whoever registers must be able to serve."""
        self._row_schemas = StoredRowSchemas(store)
        ports = NodePorts(
            wal=segmented_wal(self._settings, self._folder, self.damages),
            terms=StoredTerms(store, self._node_id),
            ticks=RemoteTicks(self.calls, random.Random()),
            observer=SentNews(self.found.find, NEWS),
            headers=StoredHeaders(),
            recovery=StoredRecovery(store),
            memory=ProcessMemory(),
        )
        runtime = self.runtime = node_runtime(self._node_id, ports, node_limits(self._settings))
        news = ChildSpec(
            "news",
            lambda: News(self._node_id, self.calls),
            MailboxSpec(bound=4096, overflow=Overflow.SHED, batch_max=1024),
        )
        children = (node_spec(runtime), news, self._member(runtime, identity))
        return SupervisorSpec("root", children=children)

    def _member(self, runtime: NodeRuntime, identity: str) -> ChildSpec:
        enrolment = RemoteEnrolment(
            self.calls,
            self._node_id,
            self.address,
            pid=os.getpid(),
            incarnation=secrets.token_hex(8),
            cluster_id=identity,
        )

        def membership() -> Membership:
            return Membership(
                self._node_id,
                enrolment,
                runtime.write_lease,
                runtime.pause,
                self.join,
                lambda: self.found.find(DIRECTORY),
            )

        return ChildSpec("membership", membership, MailboxSpec(bound=64))

    def edge(self, system: System) -> EdgeServer:
        """The services over the tree."""
        return EdgeServer(
            facts(self._settings, self._node_id),
            replace(self.found.proxies, row_schemas=self._row_schemas),
            inside(system, self._settings, self.damages),
            edge_limits(self._settings),
            node_role(self._settings.coordinator),
        )

    async def give_away(self, within_s: float) -> None:
        """Until other nodes have the channels; at once when there are none to take them."""
        with anyio.move_on_after(within_s):
            try:
                moving = await self.found.find(MEMBERSHIP).ask(Retire(), deadline_s=within_s)
                for opened in self.runtime.open_channels.all() if moving else ():
                    await opened.closed.wait()
            except ActorError as error:
                log.warning("stopping without giving channels away", error=str(error))
