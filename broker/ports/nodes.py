"""What the coordinator asks of a node, and what a node tells the coordinator and asks of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.model.channel import ChannelOffsets, ChannelTicks, PChannel
from broker.model.failure import Refusal
from broker.model.ids import NodeId, PChannelName, Term
from broker.model.message import Appended, NewMessage


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
        """Close it, and every older term; returns when it is released.

        Refused(IGNORED_OPERATION) when the node knows a newer term, or has removed this one.
        """
        ...

    async def status(self) -> Sequence[ChannelTicks]:
        """What the node serves now, each at the term it serves; also a sign that it is there."""
        ...

    async def describe(
        self, names: Sequence[PChannelName]
    ) -> Mapping[PChannelName, ChannelOffsets]:
        """What those of the channels hold that the node serves; no I/O on any log."""
        ...

    async def append(
        self, name: PChannelName, messages: Sequence[NewMessage]
    ) -> Sequence[Appended | Refusal]:
        """Append to a channel that it serves; one outcome for each, in order.

        Refused(UNKNOWN) when nobody can say what became of them.
        """
        ...

    async def pause_consumption(self, *, paused: bool) -> None:
        """Hold back consumers that have not begun to read, or let all go on."""
        ...

    def release(self) -> None:
        """Let go of what the way to the node costs; it is gone. Idempotent."""
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


@dataclass(frozen=True, slots=True)
class NodeLease:
    """The right to be a node for `lease_s` seconds, counted from before it was asked for.

    `moving`: the node is stopping, and its channels are being given to others.
    `consumption_paused`: consumers that have not begun are to be held back.
    """

    session: int
    lease_s: float
    moving: bool = False
    consumption_paused: bool = False


class NodeRegistration(Protocol):
    """The coordinator, as a node that belongs to it sees it. Calls end within `deadline_s`.

    All raise Refused, with INNER when the coordinator cannot be reached: try again.
    """

    async def register(self, deadline_s: float) -> NodeLease:
        """Become the node. Refused(RESOURCE_ACQUIRED) while another process is the node of this id,
        Refused(INVALID_ARGUMENT) when this one cannot belong to the cluster."""
        ...

    async def renew(self, session: int, deadline_s: float, *, stopping: bool) -> NodeLease:
        """Stay it. Refused(IGNORED_OPERATION) when the session is over."""
        ...

    async def leave(self, session: int, deadline_s: float) -> None:
        """Be it no more; nothing happens when the session is over."""
        ...
