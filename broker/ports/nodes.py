"""What the coordinator asks of a node, and what a node tells the coordinator."""

from collections.abc import Sequence
from typing import Protocol

from broker.model.channel import AccessMode, PChannel
from broker.model.ids import NodeId, PChannelName, Term


class NodeControl(Protocol):
    """One node, near or far. Every call has its own deadline; failures raise Refused."""

    @property
    def node_id(self) -> NodeId: ...

    @property
    def address(self) -> str: ...

    async def assign(self, channel: PChannel) -> None:
        """Open the channel at its term; returns when it serves."""
        ...

    async def remove(self, name: PChannelName, term: Term) -> None:
        """Close it; returns when it is released."""
        ...

    async def channels(self) -> Sequence[PChannel]:
        """What the node serves now."""
        ...


class ChannelObserver(Protocol):
    """Told by a node, without waiting, when a channel of its own changes hands."""

    def opened(self, node: NodeId, channel: PChannel) -> None: ...

    def closed(self, node: NodeId, name: PChannelName, term: Term) -> None: ...
