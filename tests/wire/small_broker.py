"""A whole broker in this process, on a memory log and a memory store, behind a real socket."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from actors import NoSuchActor, Ref, SupervisorSpec, System
from broker.codec.broadcast_copies import NodeCopies
from broker.codec.staged_commands import NodeStagedTxns
from broker.codec.stored_ddl import StoredDdl
from broker.codec.stored_headers import StoredHeaders
from broker.coordinator.access.stored_access import StoredAccess
from broker.coordinator.assignment.assigner_notifier import AssignerNotifier
from broker.coordinator.assignment.founding import found_cluster
from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.coordinator.assignment.stored_terms import StoredTerms
from broker.coordinator.broadcast.tree import BroadcastParts
from broker.coordinator.catalog.stored_row_schemas import StoredRowSchemas
from broker.coordinator.catalog.stored_sizes import StoredSizes
from broker.coordinator.commit.tree import BatchCommitParts
from broker.coordinator.time.oracle import OracleTicks
from broker.coordinator.tree import CoordinatorParts, coordinator_tree
from broker.core.naming import control_channel, pchannel_names
from broker.edge.rpc.access.gate import AccessGate
from broker.edge.rpc.audit.audit_trail import AuditTrail
from broker.edge.rpc.edge_limits import EdgeLimits
from broker.edge.rpc.proxies import Proxies, Proxy
from broker.edge.server import EdgeServer
from broker.edge.tidemark.admin_service import ServerFacts
from broker.edge.tidemark.process_view import ProcessView
from broker.master.ddl.ddl_callbacks import ddl_callbacks
from broker.master.ddl.ddl_planner import DdlPlanner
from broker.master.ids.id_allocator import AskedIds
from broker.master.table.stored_table import StoredTable
from broker.master.tree import MasterParts, master_tree
from broker.meta.memory_store import MemoryMetaStore
from broker.meta.stored_recovery import StoredRecovery
from broker.model.ids import NodeId, PChannelName
from broker.node.control import LocalNode
from broker.node.directory_messages import CollectStatus
from broker.node.node_closed_ticks import LocalClosedTicks
from broker.node.state.node_limits import NodeLimits
from broker.node.state.node_runtime import NodePorts, node_runtime
from broker.node.tree import node_spec
from broker.ports.callbacks import Callbacks
from broker.ports.memory import Memory
from broker.ports.meta import MetaStore
from broker.ports.nodes import NodeControl
from broker.ports.wal import Wal
from broker.process_memory import ProcessMemory
from broker.timesync.tree import TimesyncParts, timesync_tree
from broker.wal.memory_wal import MemoryWal

NODE = NodeId(1)
CLUSTER = "by-dev"
HOST = "127.0.0.1"
FIRST_TERM = 2
P0 = "by-dev-rootcoord-dml_0"
V0 = f"{P0}_100v0"
PRODUCE = "/milvus.proto.streaming.StreamingNodeHandlerService/Produce"
CONSUME = "/milvus.proto.streaming.StreamingNodeHandlerService/Consume"
DISCOVER = "/milvus.proto.streaming.StreamingCoordAssignmentService/AssignmentDiscover"
STATE = "/milvus.proto.streaming.StreamingNodeStateService/GetComponentStates"
NODE_CONTROL = "/milvus.proto.streaming.StreamingNodeManagerService/"


@dataclass
class SmallBroker:
    """What a test holds of it."""

    system: System
    edge: EdgeServer
    wal: Wal
    pchannels: tuple[PChannelName, ...] = field(default_factory=tuple)

    @property
    def port(self) -> int:
        return self.edge.port

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def channel_path(self, name: str, actor: str) -> str:
        """The path of the actor of a pchannel whose own name is `actor`."""
        for entry in self.system.statistics():
            if f"/{name}/" in entry.path and entry.path.endswith(f"/{actor}"):
                return entry.path
        raise LookupError(f"{name} has no {actor}")

    def scanner_paths(self) -> list[str]:
        return [
            entry.path
            for entry in self.system.statistics()
            if "/scanners/" in entry.path and entry.kind == "actor"
        ]


@asynccontextmanager
async def small_broker(  # noqa: PLR0913 - one for each thing a test may replace
    *,
    pchannels: int = 1,
    limits: EdgeLimits | None = None,
    wal: Wal | None = None,
    store: MetaStore | None = None,
    broadcasts: tuple[Callbacks, bool] = ({}, True),
    node_limits: NodeLimits | None = None,
    memory: Memory | None = None,
    audit: AuditTrail | None = None,
    gate: AccessGate | None = None,
) -> AsyncIterator[SmallBroker]:
    """Started, every pchannel serving; stopped in order on leaving.

    `broadcasts`: what is called at their ends, and whether nodes acknowledge their copies.
    """
    wal, store = wal or MemoryWal(), store or MemoryMetaStore()
    names, running = pchannel_names(CLUSTER, pchannels), list[System]()
    await found_cluster(store, names)

    def look_up(path: str) -> Ref[Any]:
        if not running:
            raise NoSuchActor(path)
        return running[0].find(path)

    def find(path: str) -> Callable[[], Ref[Any]]:
        return lambda: look_up(path)

    ports = NodePorts(
        wal=wal,
        terms=StoredTerms(store, NODE),
        ticks=OracleTicks(look_up, "/root/coordinator/oracle"),
        observer=AssignerNotifier(look_up, "/root/coordinator/assigner"),
        headers=StoredHeaders(),
        recovery=StoredRecovery(store),
        memory=memory or ProcessMemory(),
    )
    node = LocalNode(NODE, f"{HOST}:1", find("/root/node/directory"))
    staged = NodeStagedTxns(lambda: _all_at(names, node))
    coordinator = _coordinator(store, names, node, broadcasts, staged, find)
    timesync = TimesyncParts(store, LocalClosedTicks(names, find("/root/node/directory")), names)
    # The node first, so that the coordinator finds it when it places the channels.
    children = (
        node_spec(node_runtime(NODE, ports, node_limits)),
        coordinator_tree(coordinator, "/root"),
        timesync_tree(timesync, "/root"),
        master_tree(MasterParts(store, names), "/root"),
    )
    async with System(SupervisorSpec("root", children=children)) as system:
        running.append(system)
        proxies = _proxies(find, store, staged)
        facts = ServerFacts("0.0.0", NODE, CLUSTER, wal.name, "memory", 1, 1)
        view = ProcessView(system, True)
        edge = EdgeServer(facts, proxies, view, limits, audit=audit, access=gate)
        await edge.start(HOST, 0)
        try:
            await _until_all_serve(proxies.directory, len(names))
            yield SmallBroker(system, edge, wal, names)
        finally:
            await edge.stop(deadline_s=2.0)


def _coordinator(
    store: MetaStore,
    names: Sequence[PChannelName],
    node: NodeControl,
    broadcasts: tuple[Callbacks, bool],
    staged: NodeStagedTxns,
    find: Callable[[str], Callable[[], Ref[Any]]],
) -> CoordinatorParts:
    copies = NodeCopies(lambda: _all_at(names, node))
    callbacks, node_acks = broadcasts
    messages = StoredDdl()

    def now(path: str) -> Ref[Any]:
        return find(path)()

    def planner() -> DdlPlanner:
        ids = AskedIds(now, "/root/master/ids")
        return DdlPlanner(store, names, control_channel(names[0]), messages, ids)

    applied = ddl_callbacks(callbacks, messages, now, "/root/master/table")
    broadcast = BroadcastParts(copies, applied, node_acks, planner=planner)
    nodes = LiveNodes([node])
    return CoordinatorParts(
        store, nodes, names, broadcast=broadcast, commits=BatchCommitParts(staged)
    )


async def _all_at(
    names: Sequence[PChannelName], node: NodeControl
) -> dict[PChannelName, NodeControl]:
    return dict.fromkeys(names, node)


def _proxies(
    find: Callable[[str], Callable[[], Ref[Any]]], store: MetaStore, staged: NodeStagedTxns
) -> Proxies:
    return Proxies(
        row_schemas=StoredRowSchemas(store),
        sizes=StoredSizes(store),
        staged_txns=staged,
        meta_table=StoredTable(store),
        access=StoredAccess(store),
        directory=Proxy(find("/root/node/directory")),
        purging=Proxy(find("/root/node/purging")),
        assigner=Proxy(find("/root/coordinator/assigner")),
        catalog=Proxy(find("/root/coordinator/catalog")),
        soft_barrier=Proxy(find("/root/timesync/soft_barrier")),
        hard_barrier=Proxy(find("/root/timesync/hard_barrier")),
        cursors=Proxy(find("/root/timesync/cursors")),
        broadcaster=Proxy(find("/root/coordinator/broadcaster/locks")),
        cut_lock=Proxy(find("/root/coordinator/cut_lock")),
        balancer=Proxy(find("/root/coordinator/balancer")),
        committer=Proxy(find("/root/coordinator/commits/committer")),
        consumption=Proxy(find("/root/coordinator/consumption")),
        oracle=Proxy(find("/root/coordinator/oracle")),
        ids=Proxy(find("/root/master/ids")),
        members=Proxy(find("/root/master/members")),
        proxy_ticks=Proxy(find("/root/master/time_ticks/proxies")),
        write_node_ticks=Proxy(find("/root/master/time_ticks/write_nodes")),
        sys_config=Proxy(find("/root/coordinator/sys_config")),
        segment_reader=Proxy(find("/root/master/segment_reader")),
        segments=Proxy(find("/root/master/segments")),
        table_changes=Proxy(find("/root/master/table")),
    )


async def _until_all_serve(directory: Proxy, count: int) -> None:
    with anyio.fail_after(60):
        while len((await directory.demand(CollectStatus())).channels) < count:
            await anyio.lowlevel.checkpoint()
