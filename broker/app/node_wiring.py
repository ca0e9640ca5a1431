"""Connects a node to its ports; the same for a node process and for the node of a single broker."""

from actors import ActorError
from broker.app.actor_lookup import ActorLookup
from broker.codec.stored_headers import StoredHeaders
from broker.coordinator.assignment.stored_terms import StoredTerms
from broker.coordinator.catalog.stored_retentions import StoredRetentions
from broker.coordinator.catalog.stored_row_schemas import StoredRowSchemas
from broker.coordinator.catalog.stored_sizes import StoredSizes
from broker.meta.stored_recovery import StoredRecovery
from broker.model.ids import NodeId
from broker.node.directory_messages import Drain
from broker.node.state.node_runtime import NodePorts
from broker.ports.meta import MetaStore
from broker.ports.nodes import ChannelObserver
from broker.ports.ticks import TickSource
from broker.ports.wal import Wal
from broker.process_memory import ProcessMemory


def node_ports(
    store: MetaStore, node_id: NodeId, wal: Wal, ticks: TickSource, observer: ChannelObserver
) -> NodePorts:
    """The ports of a node that keeps its terms and snapshots in `store`."""
    return NodePorts(
        wal=wal,
        terms=StoredTerms(store, node_id),
        ticks=ticks,
        observer=observer,
        headers=StoredHeaders(),
        recovery=StoredRecovery(store),
        memory=ProcessMemory(),
        catalog=StoredRowSchemas(store),
        retentions=StoredRetentions(store),
        sizes=StoredSizes(store),
    )


def refuse_new_callers(lookup: ActorLookup) -> None:
    """Have the node refuse new callers, because the process stops."""
    try:
        lookup.proxies.directory.tell(Drain())
    except ActorError:
        pass  # the directory has ended already
