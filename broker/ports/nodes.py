"""What the coordinator asks of a node, and what a node tells the coordinator."""

from collections.abc import Sequence
from typing import Protocol

from broker.model.channel import PChannel
from broker.model.ids import NodeId, PChannelName, Term


class NodeControl(Protocol):
    """One node, near or far. Every call has its own deadline; failures raise Refused.

    The coordinator gives up waiting after a while by cancelling the call, and asks again later.
    """

    @property
    def node_id(self) -> NodeId: ...

    @property
    def address(self) -> str:
        """`host:port` as clients reach it; read anew for each table that is published."""
        ...

    async def assign(self, channel: PChannel) -> None:
        """Open the channel at its term, closing an older one; returns when it serves.

        Refused(IGNORED_OPERATION) for a term that is not newer than what the node knows.
        """
        ...

    async def remove(self, name: PChannelName, term: Term) -> None:
        """Close it, and every older term; returns when it is released."""
        ...

    async def channels(self) -> Sequence[PChannel]:
        """What the node serves now, each at the term it serves; also a sign that it is there."""
        ...


class ChannelObserver(Protocol):
    """Told by a node, without waiting, when a channel of its own changes hands.

    Calls may be lost or repeated: the coordinator also looks at the record from time to time.
    """

    def opened(self, node: NodeId, channel: PChannel) -> None:
        """The node serves the channel at this term, which it claimed before."""
        ...

    def closed(self, node: NodeId, name: PChannelName, term: Term) -> None:
        """The node no longer serves this term; it may be about to serve a newer one."""
        ...
