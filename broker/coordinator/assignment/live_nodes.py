"""The nodes there are now, each with a way to connect it.

Written by the Registrar, or fixed where the node is this process; frozen by the Balancer; read by
whoever places or calls. It outlives those actors, so that a restart is no change of nodes.
"""

from collections.abc import Iterable

from broker.model.ids import NodeId
from broker.ports.nodes import NodeControl


class LiveNodes:
    """Nodes by id. A node that came back is another object than before."""

    def __init__(self, fixed: Iterable[NodeControl] = ()) -> None:
        self._nodes = {node.node_id: node for node in fixed}
        self._stopping: set[NodeId] = set()
        self._frozen: set[NodeId] = set()
        self._heard: set[NodeId] = set()
        self.consumption_paused: bool | None = None
        """What nodes are told with each lease; None: the record has not been read yet."""

    def find(self, node_id: NodeId | None) -> NodeControl | None:
        """The node, if it is there."""
        return None if node_id is None else self._nodes.get(node_id)

    def all(self) -> tuple[NodeControl, ...]:
        """Every node, sorted by id."""
        return tuple([self._nodes[node_id] for node_id in sorted(self._nodes)])

    def accepting(self) -> frozenset[NodeId]:
        """Those that may be given channels."""
        return frozenset(self._nodes) - self._stopping - self._frozen

    def frozen(self) -> tuple[NodeId, ...]:
        """Those that are to be emptied, sorted."""
        return tuple(sorted(self._frozen))

    def freeze(self, nodes: Iterable[NodeId], defreeze: Iterable[NodeId]) -> None:
        """Take no more channels, or take them again. Unknown ids are passed over."""
        self._frozen |= {node for node in nodes if node in self._nodes}
        self._frozen -= set(defreeze)

    def put(self, node: NodeControl) -> None:
        """It is there from now on; one of the same id before it is gone."""
        self.drop(node.node_id)
        self._nodes[node.node_id] = node

    def retire(self, node_id: NodeId) -> None:
        """It is there, and takes no more channels."""
        self._stopping.add(node_id)

    def heard(self, node_id: NodeId) -> None:
        """It has spoken to this coordinator, and has a lease of it."""
        self._heard.add(node_id)

    def is_confirmed(self, node_id: NodeId) -> bool:
        """Whether it is known to be up, as far as its lease tells."""
        return node_id in self._heard

    def drop(self, node_id: NodeId) -> None:
        """It is gone; calls to it that are under way end."""
        self._heard.discard(node_id)
        self._stopping.discard(node_id)
        self._frozen.discard(node_id)
        node = self._nodes.pop(node_id, None)
        if node is not None:
            node.release()
