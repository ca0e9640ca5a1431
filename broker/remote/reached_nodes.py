"""Calls a node at the address that it advertises, before it may join.

Channels of a node that nobody reaches would be assigned, and neither served nor given back.
"""

from collections.abc import Callable
from typing import Final

from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId
from broker.ports.nodes import NodeControl, Probe, probe

WARN_S: Final = 60.0
"""So long after its last attempt a node that was refused is warned of; it may have given up."""
NODES_MAX: Final = 100
"""Of which `warnings` tells; the oldest ones are forgotten."""

Connect = Callable[[NodeId, str, Callable[[], None]], NodeControl]


class NodeNotReached(Refused):
    """A node does not answer at its advertised address, or another process does."""

    def __init__(self, cause: str) -> None:
        super().__init__(StreamingCode.IGNORED_OPERATION, cause)


class ReachedNodes:
    """`connect` makes a node's proxy; `now` is monotonic, in seconds."""

    def __init__(self, connect: Connect, now: Callable[[], float]) -> None:
        self._connect, self._now = connect, now
        self._refused: dict[NodeId, tuple[float, str]] = {}

    async def check(self, node: NodeId, address: str) -> None:
        """Call the node, for 2 s at most. Raises NodeNotReached."""
        proxy = self._connect(node, address, _nothing)
        try:
            found, why = await probe(proxy)
        finally:
            proxy.release()
        self._refused.pop(node, None)
        if found is Probe.UNREACHED:
            cause = (
                f"node {node} advertises {address}, and {why}; start it with --advertise"
                " HOST[:PORT], where coordinators and clients reach it, or open the port"
            )
            self._refused[node] = (self._now(), cause)
            while len(self._refused) > NODES_MAX:
                del self._refused[next(iter(self._refused))]
            raise NodeNotReached(cause)

    def warnings(self) -> list[str]:
        """Of nodes that were refused of late."""
        since_s = self._now() - WARN_S
        return [cause for at_s, cause in self._refused.values() if at_s > since_s]


def _nothing() -> None:
    pass
