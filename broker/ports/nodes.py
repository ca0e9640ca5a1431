"""The calls between the coordinator and a node, in both directions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from broker.model.channel import ChannelOffsets, ChannelTicks, PChannel
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import NodeId, PChannelName, Term
from broker.model.master.live_config import StoredSettings
from broker.model.master.reservation import SegmentOrders
from broker.model.message import Appended, NewMessage


class Unreachable(Refused):
    """No answer, or a broken connection: the call may or may not have been carried out.

    `absent`: nothing listens at the address, so its process is gone, or a firewall rejects calls;
    nothing at any address, if several were tried.
    """

    def __init__(self, cause: str, *, absent: bool = False) -> None:
        super().__init__(StreamingCode.INNER, cause)
        self.absent = absent


class NodeControl(Protocol):
    """One node, in this process or another. Each call has its own deadline; errors raise Refused.

    The coordinator may cancel a call that takes too long, and repeats it later.
    """

    @property
    def node_id(self) -> NodeId: ...

    @property
    def address(self) -> str:
        """`host:port` for clients; read again for each published assignment table."""
        ...

    async def assign(self, channel: PChannel) -> None:
        """Open the channel at its term, closing an older one; returns when it serves.

        Refused(IGNORED_OPERATION) if the term is not newer than the newest one the node knows.
        """
        ...

    async def remove(self, name: PChannelName, term: Term) -> None:
        """Close the channel at this term and any older one; returns when it is closed.

        Refused(IGNORED_OPERATION) if the node knows a newer term, or has removed this one.
        """
        ...

    async def status(self) -> Sequence[ChannelTicks]:
        """The channels that the node serves now, with their terms; also a liveness probe."""
        ...

    async def describe(
        self, names: Sequence[PChannelName]
    ) -> Mapping[PChannelName, ChannelOffsets]:
        """The offsets of those channels that the node serves; no I/O on any log."""
        ...

    async def append(
        self, name: PChannelName, messages: Sequence[NewMessage]
    ) -> Sequence[Appended | Refusal]:
        """Append to a channel that it serves; one outcome for each message, in order.

        Refused(UNKNOWN) if the outcome is unknown.
        """
        ...

    async def order_segments(self, name: PChannelName, orders: SegmentOrders) -> None:
        """Hand orders to the owner of a channel that it serves; idempotent.

        Unknown segments are ignored. What is lost with the owner is not carried out: repeat it.
        """
        ...

    async def pause_consumption(self, *, paused: bool) -> None:
        """Hold back consumers that have not started to read, or let them start."""
        ...

    async def refresh_settings(self, revision: int) -> int:
        """Have the node fetch settings of this revision with its lease; the one it has then."""
        ...

    def release(self) -> None:
        """Release the connection to a node that is gone. Idempotent."""
        ...


class Probe(Enum):
    """How a node answers when it is asked for its status."""

    ANSWERED = auto()
    REFUSED = auto()
    """It is there, and serves nothing now."""
    UNREACHED = auto()
    """Nobody answers at its address, or somebody else does."""


async def probe(node: NodeControl) -> tuple[Probe, str]:
    """Ask the node for its status, within that call's own deadline; with why it did not answer."""
    try:
        await node.status()
    except Unreachable as error:
        return Probe.UNREACHED, f"the coordinator cannot reach it: {error.refusal.cause}"
    except Refused as refused:
        cause = refused.refusal.cause
        if refused.refusal.code is StreamingCode.IGNORED_OPERATION:
            return Probe.UNREACHED, f"another process answers there: {cause}"
        return Probe.REFUSED, cause
    return Probe.ANSWERED, ""


class ChannelObserver(Protocol):
    """Notified by a node when it starts or stops serving a channel on its own; never blocks.

    Calls may be lost or repeated: the coordinator also checks the records periodically.
    """

    def opened(self, node: NodeId, channel: PChannel) -> None:
        """The node serves the channel at this term, which it claimed before."""
        ...

    def closed(self, node: NodeId, name: PChannelName, term: Term, *, reopens: bool) -> None:
        """The node no longer serves this term. `reopens`: it is about to serve a newer one."""
        ...


@dataclass(frozen=True, slots=True)
class NodeLease:
    """The right to be a node for `lease_s` seconds, counted from before the request was sent.

    `moving`: the node is stopping and its channels are being handed off.
    `consumption_paused`: hold back consumers that have not started to read.
    `coordinator`: HOST:PORT at which clients reach the coordinator; "" when it does not say.
    `settings`: stored ones of another revision than the node has; None: it has the newest.
    """

    session: int
    lease_s: float
    moving: bool = False
    consumption_paused: bool = False
    coordinator: str = ""
    settings: StoredSettings | None = None


class NodeRegistration(Protocol):
    """A node's registration with the coordinator. Calls return within `deadline_s`.

    All raise Refused; INNER if the coordinator cannot be reached, or does not reach a node that
    renews: try again. `settings_revision`: of the stored settings in effect here; the lease carries
    them when there are others.
    """

    async def register(self, deadline_s: float, settings_revision: int) -> NodeLease:
        """Register this process as the node.

        Refused(RESOURCE_ACQUIRED) while another process is the node of this id,
        Refused(IGNORED_OPERATION) if it is not reached at the address that it advertises,
        Refused(INVALID_ARGUMENT) if this one cannot belong to the cluster.
        """
        ...

    async def renew(
        self, session: int, deadline_s: float, settings_revision: int, *, stopping: bool
    ) -> NodeLease:
        """Renew the lease. Refused(IGNORED_OPERATION) if the session is over."""
        ...

    async def leave(self, session: int, deadline_s: float) -> None:
        """End the session; no-op if it is over."""
        ...
