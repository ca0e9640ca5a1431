"""Which services a process offers, for each of the three roles it may have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from grpclib.const import Handler

from broker.edge.access.auth_service import AuthService
from broker.edge.groups.groups_service import GroupsService
from broker.edge.live_config.node_settings_service import NodeSettingsService
from broker.edge.live_config.sys_config_service import SysConfigService
from broker.edge.master.allocation_service import AllocationService
from broker.edge.master.clashes_service import ClashesService
from broker.edge.master.collections_service import CollectionsService
from broker.edge.master.components_service import ComponentsService
from broker.edge.master.ddl_calls import DdlCalls
from broker.edge.master.definitions_service import DefinitionsService
from broker.edge.master.members_service import MembersService
from broker.edge.master.segments_service import SegmentReadsService, SegmentsService
from broker.edge.master.table_service import TableService
from broker.edge.master.time_ticks_service import TimeTicksService
from broker.edge.milvus.assignment_service import AssignmentService
from broker.edge.milvus.broadcast_service import BroadcastService
from broker.edge.milvus.handler_service import HandlerService
from broker.edge.milvus.node_manager_service import NodeManagerService
from broker.edge.milvus.state_service import ServerState, StateService
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxies, Proxy
from broker.edge.space.space_service import SpaceService
from broker.edge.switching.wal_service import WalService
from broker.edge.tidemark.admin_service import (
    AdminService,
    DescribeAll,
    NodeAdminService,
    ServerFacts,
    StandbyAdminService,
)
from broker.edge.tidemark.broadcast_holds_service import BroadcastHoldsService
from broker.edge.tidemark.broadcasts_service import BroadcastsService
from broker.edge.tidemark.cluster_service import ClusterProxies, ClusterService
from broker.edge.tidemark.commits_service import CommitsRedirect, CommitsService
from broker.edge.tidemark.copies_service import CopiesService
from broker.edge.tidemark.cursors_service import CursorsService
from broker.edge.tidemark.log_service import LogService
from broker.edge.tidemark.process_view import ProcessView
from broker.edge.tidemark.time_sync_service import CutService, TimeSyncService


class Service(Protocol):
    """What grpclib mounts."""

    def __mapping__(self) -> Mapping[str, Handler]: ...


@dataclass(frozen=True, slots=True)
class RoleParts:
    """What the services of a process need."""

    facts: ServerFacts
    proxies: Proxies
    state: Callable[[], ServerState]
    view: ProcessView


Role = Callable[[Middleware, RoleParts], Sequence[Service]]


def single_process(middleware: Middleware, parts: RoleParts) -> Sequence[Service]:
    """Coordinator and node in one process."""
    facts, proxies = parts.facts, parts.proxies
    return (
        *_of_channels(middleware, parts),
        *_of_cluster(middleware, parts),
        CutService(middleware, proxies, everywhere=True),
        StateService(middleware, facts.node_id, parts.state),
        AdminService(middleware, facts, proxies, parts.state, parts.view),
    )


def node(coordinator: Callable[[], str], membership: Proxy) -> Role:
    """A node; `coordinator` is the address where clients find its coordinator."""

    def role(middleware: Middleware, parts: RoleParts) -> Sequence[Service]:
        facts, proxies = parts.facts, parts.proxies
        return (
            *_of_channels(middleware, parts),
            CutService(middleware, proxies, everywhere=False),
            CopiesService(middleware, proxies.directory),
            CommitsRedirect(middleware, coordinator),
            NodeSettingsService(middleware, membership),
            StateService(middleware, facts.node_id, parts.state),
            NodeAdminService(middleware, facts, proxies, parts.state, parts.view),
        )

    return role


def coordinator(cluster: ClusterProxies, offsets: DescribeAll) -> Role:
    """A coordinator, whose nodes are other processes."""

    def role(middleware: Middleware, parts: RoleParts) -> Sequence[Service]:
        facts, proxies = parts.facts, parts.proxies
        return (
            *_of_cluster(middleware, parts),
            ClusterService(middleware, cluster),
            StateService(middleware, facts.node_id, parts.state),
            AdminService(middleware, facts, proxies, parts.state, parts.view, offsets),
        )

    return role


def standby(leading: Role) -> Role:
    """A coordinator that stands by, with all calls of `leading`, the role that it may get.

    Its gate refuses them; only its own health is answered.
    """

    def role(middleware: Middleware, parts: RoleParts) -> Sequence[Service]:
        def state() -> ServerState:
            now = parts.state()
            return ServerState.STANDBY if now is ServerState.HEALTHY else now

        waiting, facts = replace(parts, state=state), parts.facts
        # Last: of two handlers of one call the later one counts.
        own = StandbyAdminService(middleware, facts, parts.proxies, state, parts.view)
        return (*leading(middleware, waiting), own)

    return role


def _of_channels(middleware: Middleware, parts: RoleParts) -> Sequence[Service]:
    facts, directory = parts.facts, parts.proxies.directory
    return (
        HandlerService(middleware, directory, facts.wal_name, facts.node_id),
        NodeManagerService(middleware, directory),
        LogService(middleware, directory, parts.proxies.row_schemas),
        GroupsService(middleware, directory, parts.proxies.row_schemas),
        SpaceService(middleware, parts.proxies),
    )


def _of_cluster(middleware: Middleware, parts: RoleParts) -> Sequence[Service]:
    proxies = parts.proxies
    calls = DdlCalls(proxies.broadcaster, proxies.assigner, proxies.row_schemas)
    return (
        AssignmentService(middleware, proxies.assigner, proxies.balancer),
        BroadcastService(middleware, proxies),
        BroadcastsService(middleware, proxies.broadcaster),
        CommitsService(middleware, proxies.committer, proxies.staged_txns),
        SysConfigService(middleware, proxies.sys_config),
        CollectionsService(middleware, proxies.catalog, calls, proxies.meta_table),
        DefinitionsService(middleware, calls, proxies.meta_table),
        TableService(middleware, proxies.meta_table),
        ClashesService(middleware, proxies),
        TimeSyncService(middleware, proxies),
        CursorsService(middleware, proxies.cursors),
        BroadcastHoldsService(middleware, proxies.cut_lock, proxies.lead),
        AllocationService(middleware, proxies),
        MembersService(middleware, proxies.members),
        TimeTicksService(middleware, proxies),
        AuthService(middleware, proxies.access),
        WalService(middleware, proxies.altering),
        ComponentsService(middleware, parts.state, parts.view),
        SegmentReadsService(middleware, proxies.segment_reader),
        SegmentsService(middleware, proxies.segments),
    )
