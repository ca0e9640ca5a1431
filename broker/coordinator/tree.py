"""The coordinator's subtree, built from what it needs.

Owns the order of starts: who asks comes after whom it asks, and restarts with it (rest_for_one).
Never opens the store or a node. Next: broker/coordinator/assigner.py
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from actors import (
    ONE_FOR_ONE,
    REST_FOR_ONE,
    ChildSpec,
    MailboxSpec,
    Overflow,
    SupervisorSpec,
)
from broker.coordinator.assigner import Assigner
from broker.coordinator.broadcast_tree import BroadcastParts, broadcaster_tree
from broker.coordinator.catalog import Catalog
from broker.coordinator.oracle import Oracle
from broker.coordinator.placement import Placement, PlacementTiming
from broker.coordinator.window import TickWindow
from broker.model.ids import PChannelName
from broker.ports.meta import MetaStore
from broker.ports.nodes import NodeControl

COORDINATOR = "coordinator"
WINDOW = "window"
ORACLE = "oracle"
CATALOG = "catalog"
ASSIGNER = "assigner"
PLACEMENTS = "placements"


@dataclass(frozen=True, slots=True)
class CoordinatorParts:
    """What the coordinator stands on; `nodes` are all the nodes there are, by their own ids."""

    store: MetaStore
    nodes: Sequence[NodeControl]
    pchannels: Sequence[PChannelName]
    timing: PlacementTiming = field(default_factory=PlacementTiming)
    broadcast: BroadcastParts | None = None
    """None: this coordinator takes no broadcasts."""


def coordinator_tree(parts: CoordinatorParts, parent_path: str) -> SupervisorSpec:
    """The subtree `coordinator`, to be put under the supervisor at `parent_path`.

    Every actor is patient: while the store refuses (a full disk) they wait for it, and the
    process goes on. Call `founding.found_cluster` before, for a clear refusal at the start.
    """
    path = f"{parent_path}/{COORDINATOR}"
    nodes = {node.node_id: node for node in parts.nodes}
    broadcaster = (broadcaster_tree(parts.store, parts.broadcast, path),) if parts.broadcast else ()
    return SupervisorSpec(
        name=COORDINATOR,
        strategy=REST_FOR_ONE,
        children=(
            ChildSpec(WINDOW, lambda: TickWindow(parts.store), patient=True),
            ChildSpec(
                ORACLE,
                lambda: Oracle(f"{path}/{WINDOW}"),
                MailboxSpec(bound=4096, batch_max=256),
                patient=True,
            ),
            ChildSpec(
                CATALOG,
                lambda: Catalog(parts.store, parts.pchannels),
                MailboxSpec(bound=256),
                patient=True,
            ),
            ChildSpec(
                ASSIGNER,
                lambda: Assigner(parts.store, nodes, parts.pchannels),
                MailboxSpec(bound=16_384, batch_max=1024),
                patient=True,
            ),
            _placements(parts, f"{path}/{ASSIGNER}"),
            *broadcaster,
        ),
    )


def _placements(parts: CoordinatorParts, assigner_path: str) -> SupervisorSpec:
    nodes = {node.node_id: node for node in parts.nodes}

    def placement(name: PChannelName) -> ChildSpec:
        return ChildSpec(
            name,
            lambda: Placement(name, parts.store, nodes, assigner_path, parts.timing),
            MailboxSpec(bound=256, overflow=Overflow.SHED),
            patient=True,
        )

    return SupervisorSpec(
        name=PLACEMENTS,
        strategy=ONE_FOR_ONE,
        children=tuple(placement(name) for name in parts.pchannels),
        restarts_max=5 + len(parts.pchannels),
    )
