"""Which services a process offers, by the role it plays.

Owns the three lists. Next: broker/edge/server.py
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from grpclib.const import Handler

from broker.edge.milvus.assignment_service import AssignmentService
from broker.edge.milvus.broadcast_service import BroadcastService
from broker.edge.milvus.handler_service import HandlerService
from broker.edge.milvus.node_manager_service import NodeManagerService
from broker.edge.milvus.state_service import ServerState, StateService
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxies
from broker.edge.tidemark.admin_service import (
    AdminService,
    DescribeAll,
    NodeAdminService,
    ServerFacts,
)
from broker.edge.tidemark.broadcasts_service import BroadcastsService
from broker.edge.tidemark.cluster_service import ClusterProxies, ClusterService
from broker.edge.tidemark.collections_service import CollectionsService
from broker.edge.tidemark.commits_service import CommitsElsewhere, CommitsService
from broker.edge.tidemark.copies_service import CopiesService
from broker.edge.tidemark.cursors_service import CursorsService
from broker.edge.tidemark.holds_service import HoldsService
from broker.edge.tidemark.log_service import LogService
from broker.edge.tidemark.process_view import Inside
from broker.edge.tidemark.time_sync_service import CutService, TimeSyncService


class Service(Protocol):
    """What grpclib mounts."""

    def __mapping__(self) -> Mapping[str, Handler]: ...


@dataclass(frozen=True, slots=True)
class Offer:
    """What the services of a process ask."""

    facts: ServerFacts
    reaches: Proxies
    state: Callable[[], ServerState]
    inside: Inside


Role = Callable[[Middleware, Offer], Sequence[Service]]


def whole(gate: Middleware, offer: Offer) -> Sequence[Service]:
    """Coordinator and node in one process."""
    facts, reaches = offer.facts, offer.reaches
    return (
        *_of_channels(gate, offer),
        *_of_cluster(gate, offer),
        CutService(gate, reaches, everywhere=True),
        StateService(gate, facts.node_id, offer.state),
        AdminService(gate, facts, reaches, offer.state, offer.inside),
    )


def node(coordinator: str) -> Role:
    """A node whose coordinator is another process, at this address."""

    def role(gate: Middleware, offer: Offer) -> Sequence[Service]:
        facts, reaches = offer.facts, offer.reaches
        return (
            *_of_channels(gate, offer),
            CutService(gate, reaches, everywhere=False),
            CopiesService(gate, reaches.directory),
            CommitsElsewhere(gate, coordinator),
            StateService(gate, facts.node_id, offer.state),
            NodeAdminService(gate, facts, reaches, offer.state, offer.inside),
        )

    return role


def coordinator(cluster: ClusterProxies, offsets: DescribeAll) -> Role:
    """A coordinator whose nodes are other processes."""

    def role(gate: Middleware, offer: Offer) -> Sequence[Service]:
        facts, reaches = offer.facts, offer.reaches
        return (
            *_of_cluster(gate, offer),
            ClusterService(gate, cluster),
            StateService(gate, facts.node_id, offer.state),
            AdminService(gate, facts, reaches, offer.state, offer.inside, offsets),
        )

    return role


def _of_channels(gate: Middleware, offer: Offer) -> Sequence[Service]:
    facts, directory = offer.facts, offer.reaches.directory
    return (
        HandlerService(gate, directory, facts.wal_name, facts.node_id),
        NodeManagerService(gate, directory),
        LogService(gate, directory, offer.reaches.row_schemas),
    )


def _of_cluster(gate: Middleware, offer: Offer) -> Sequence[Service]:
    reaches = offer.reaches
    return (
        AssignmentService(gate, reaches.assigner, reaches.balancer),
        BroadcastService(gate, reaches.broadcaster, reaches.assigner),
        BroadcastsService(gate, reaches.broadcaster),
        CommitsService(gate, reaches.committer, reaches.staged_txns),
        CollectionsService(gate, reaches.catalog),
        TimeSyncService(gate, reaches),
        CursorsService(gate, reaches.cursors),
        HoldsService(gate, reaches.cut_gate, reaches.lead),
    )
