"""A node whose coordinator is another process.

The port is open before the coordinator hears of it. The node hands off its channels to other nodes,
where there are any, before the port closes.
"""

import os
import random
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio
import structlog

from actors import (
    ActorError,
    ChildSpec,
    MailboxSpec,
    Overflow,
    SupervisorSpec,
    System,
    SystemClock,
)
from broker.app.actor_lookup import CHANNEL_REPORTS, DIRECTORY, MEMBERSHIP, ActorLookup
from broker.app.advertised import with_advertised
from broker.app.leading.coordinator_search import known_coordinators
from broker.app.limits_from_settings import edge_limits, node_limits, retention
from broker.app.node_wiring import node_ports, refuse_new_callers
from broker.app.probes.http_endpoint import sources_of
from broker.app.probes.readiness import Readiness, membership_problems
from broker.app.process_errors import CannotStart
from broker.app.running_process import Broker, process_view, running, server_facts
from broker.app.security.process_access import ProcessAccess, node_access
from broker.app.security.secured import client_tls
from broker.app.settings_in_force import SettingsInForce
from broker.app.storage import LogStorage, disk_reserve, log_storage, metadata
from broker.app.stores.etcd_metadata import MetadataUse
from broker.app.stores.milvus_sessions import milvus_sessions, node_session
from broker.app.stores.store_watch import until_unusable
from broker.coordinator.assignment.founding import known_cluster
from broker.coordinator.catalog.stored_row_schemas import StoredRowSchemas
from broker.coordinator.leases.leader_records import read_leader
from broker.data_folder import DataFolder
from broker.edge.roles import node as node_role
from broker.edge.rpc.audit.audit_trail import AuditTrail
from broker.edge.rpc.leader_gate import TermFence
from broker.edge.server import EdgeServer
from broker.etcd.milvus_session import MilvusSession
from broker.metrics.view import Sources
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import NodeId
from broker.node.membership.cluster_join import ClusterJoin
from broker.node.membership.leased import Leased
from broker.node.membership.membership import Membership, Retire
from broker.node.state.node_runtime import NodeRuntime, node_runtime
from broker.node.tree import node_spec
from broker.ports.meta import MetaError, MetaStore
from broker.process_settings import Settings
from broker.remote.calls import Calls
from broker.remote.channel_reports import ChannelReporter, ReportingObserver
from broker.remote.clock_watch import ClockWatch
from broker.remote.leader_calls import Known, LeaderCalls
from broker.remote.remote_coordinator import RemoteEnrolment, RemoteTicks
from broker.remote.remote_holds import RemoteHolds

CLUSTER_WAIT_S_MAX = 30.0
CLUSTER_POLL_S = 0.2
RETIRE_SHARE = 0.8
"""Of the time to hand off, for a coordinator to hear of it; channels need the rest to move."""

log = structlog.get_logger("tidemark")


@asynccontextmanager
async def run_node(
    settings: Settings, folder: DataFolder, bound: socket.socket
) -> AsyncIterator[Broker]:
    """A node that has joined its cluster when the block begins, and left it when the block ends.

    `bound` is used up. Waits for a coordinator that does not answer yet. Raises CannotStart with
    nothing left running.
    """
    disk_reserve(settings, folder)
    async with metadata(settings, folder, MetadataUse.NODE) as store:
        identity = await _cluster_identity(store, settings)
        fence = TermFence(partial(_leader_term, store))
        access = await node_access(settings, folder.root, store)
        address = with_advertised(settings, bound).advertise
        async with (
            known_coordinators(settings, store) as known,
            milvus_sessions(settings, identity) as sessions,
            access.followed(store),
        ):
            calls = _coordinator_calls(settings, known, fence, access)
            try:
                async with log_storage(settings, folder, identity, store) as storage:
                    shared = store, fence, access
                    parts = _NodeParts(settings, storage, address, shared, calls, identity)
                    async with running(parts, settings, bound) as broker:
                        sessions.announce(parts.milvus_session())
                        yield replace(broker, watch=partial(until_unusable, store))
            finally:
                calls.close()


def _coordinator_calls(
    settings: Settings, known: Known, fence: TermFence, access: ProcessAccess
) -> LeaderCalls:
    tls = client_tls(settings)
    meant = {"cluster": settings.cluster, **access.metadata}

    def connect(host: str, port: int) -> Calls:
        return Calls(host, port, meant, tls, fence.metadata)

    return LeaderCalls(known, connect)


async def _leader_term(store: MetaStore) -> int:
    try:
        return (await read_leader(store)).term
    except MetaError as error:
        raise Refused(StreamingCode.INNER, f"cannot read who leads: {error}") from error


def _why_not(settings: Settings, refusal: Refusal) -> str:
    """The error sentence. A refusal already says what to do; a missing answer does not."""
    if refusal.code in (StreamingCode.INVALID_ARGUMENT, StreamingCode.RESOURCE_ACQUIRED):
        return refusal.cause
    if refusal.code is StreamingCode.IGNORED_OPERATION:
        wait_s = settings.coordinator_wait_s
        return f"the coordinator did not accept this node within {wait_s:g} s: {refusal.cause}"
    hint = (
        "pass --coordinator HOST:PORT as `tidemark coordinator` prints it"
        if settings.coordinator
        else f"start `tidemark coordinator` with --meta {settings.meta}"
    )
    return (
        f"no coordinator accepted this node within {settings.coordinator_wait_s:g} s:"
        f" {refusal.cause}; {hint}, or wait longer with TIDEMARK_COORDINATOR_WAIT_S"
    )


async def _cluster_identity(store: MetaStore, settings: Settings) -> str:
    """The identity of the cluster in the data folder; waits for a coordinator to make one."""
    waiting = False
    with anyio.move_on_after(CLUSTER_WAIT_S_MAX):
        while True:
            try:
                cluster = await known_cluster(store)
            except MetaError as error:
                raise CannotStart(str(error)) from error
            if cluster is not None and cluster.identity:
                return cluster.identity
            if not waiting:
                log.warning(
                    "waiting for a coordinator to make the cluster in this data folder",
                    data=str(settings.data_dir),
                    seconds_max=CLUSTER_WAIT_S_MAX,
                )
            waiting = True
            await anyio.sleep(CLUSTER_POLL_S)
    raise CannotStart(
        f"{settings.meta or f'data folder {settings.data_dir}'} holds no cluster; start `tidemark"
        " coordinator` there first, or pass the coordinator's own --meta and --data-dir"
    )


class _NodeParts:
    """A node, its membership in the cluster, and its news to the coordinator; see ProcessParts."""

    def __init__(
        self,
        settings: Settings,
        storage: LogStorage,
        address: str,
        shared: tuple[MetaStore, TermFence, ProcessAccess],
        calls: LeaderCalls,
        identity: str,
    ) -> None:
        self.lookup = ActorLookup()
        self.name = f"node-{settings.node_id}"
        self.address = address
        self.settings = SettingsInForce(settings)
        self._settings = settings
        self._store, self._fence, self._access = shared
        self._calls = calls
        self._identity = identity
        self._node_id = NodeId(settings.node_id)
        self._damages = storage.damages
        self._join = ClusterJoin(settings.node_lease_s, settings.coordinator_wait_s)

        def session() -> int:
            return self._runtime.write_lease.session

        ticks = RemoteTicks(calls, random.Random(), self._node_id, session)
        self._ticks = ClockWatch(ticks, SystemClock())
        self._runtime = self._node_runtime(storage)

    def spec(self) -> SupervisorSpec:
        """Membership is last: a node that registers must be able to serve."""
        news = ChildSpec(
            "channel_reports",
            lambda: ChannelReporter(self._node_id, self._calls),
            MailboxSpec(bound=4096, overflow=Overflow.SHED, batch_max=1024),
        )
        access = self._access.children()
        children = (node_spec(self._runtime), news, *access, self._membership())
        return SupervisorSpec("root", children=children)

    def edge(self, system: System, readiness: Readiness, audit: AuditTrail) -> EdgeServer:
        """See ProcessParts."""
        return EdgeServer(
            server_facts(self._settings, self._node_id, self._identity),
            replace(self.lookup.proxies, row_schemas=StoredRowSchemas(self._store)),
            process_view(
                system,
                self._settings,
                self._damages,
                readiness,
                (audit.sink.warnings, self._access.warnings, self._ticks.warnings),
                self._runtime,
            ),
            edge_limits(self._settings),
            node_role(
                lambda: self._join.coordinator or ",".join(self._calls.known()),
                self.lookup.proxy(MEMBERSHIP),
            ),
            audit,
            self._fence.check,
            self._access.gate,
        )

    async def until_ready(self, system: System) -> None:
        """Until the coordinator has registered this node. Raises CannotStart when it refuses."""
        refusal = await self._join.wait()
        if refusal is not None:
            raise CannotStart(_why_not(self._settings, refusal))

    def milvus_session(self) -> MilvusSession:
        """This node as Milvus's clients see it, once it has joined."""
        return node_session(self._settings.node_id, self.address, self._join.session)

    def reasons_against(self, system: System) -> Sequence[str]:
        """See ProcessParts."""
        return membership_problems(system.statistics())

    def adopt(self, settings: Settings) -> None:
        """See ProcessParts."""
        self._runtime.adopt(node_limits(settings))
        self._runtime.retention.adopt(retention(settings), settings.hold_bytes_max)

    def sources(self, system: System, edge: EdgeServer) -> Sources:
        """See ProcessParts."""
        return sources_of(self._settings, system, edge, self._runtime, self._damages.found)

    async def hand_off(self, system: System, deadline_s: float) -> None:
        """Wait until other nodes have the channels; do not wait where there are none."""
        with anyio.move_on_after(deadline_s):
            try:
                retire = Retire(deadline_s * RETIRE_SHARE)
                moving = await self.lookup.find(MEMBERSHIP).ask(retire, deadline_s=deadline_s)
                for opened in self._runtime.open_channels.all() if moving else ():
                    await opened.closed.wait()
            except ActorError as error:
                log.warning("stopping without handing off channels", error=str(error))
        # Not earlier: until its channels have moved, clients need this node.
        refuse_new_callers(self.lookup)

    def _node_runtime(self, storage: LogStorage) -> NodeRuntime:
        observer = ReportingObserver(self.lookup.find, CHANNEL_REPORTS)
        ports = replace(
            node_ports(self._store, self._node_id, storage.wal, self._ticks, observer),
            holds=RemoteHolds(self._calls),
            room=disk_reserve(self._settings, storage.folder),
            switch=storage.switch,
        )
        return node_runtime(self._node_id, ports, node_limits(self._settings))

    def _membership(self) -> ChildSpec:
        enrolment = RemoteEnrolment(
            self._calls,
            self._node_id,
            self.address,
            pid=os.getpid(),
            # Beside the pid, because in containers a process and its successor may have the same.
            incarnation=secrets.token_hex(8),
            cluster_id=self._identity,
        )

        def membership() -> Membership:
            return Membership(
                self._node_id,
                enrolment,
                Leased(self._runtime.write_lease, self._runtime.pause, self.settings),
                self._join,
                lambda: self.lookup.find(DIRECTORY),
            )

        return ChildSpec("membership", membership, MailboxSpec(bound=64))
