"""The messages of the Registrar. Requests that fail raise Refused."""

from dataclasses import dataclass

from actors import Request
from broker.model.ids import NodeId
from broker.ports.nodes import NodeLease


@dataclass(frozen=True, slots=True)
class RegisterNode(Request[NodeLease]):
    """Register a process as a node. Refused: see `Enrolment.register`.

    `settings_revision`: of the stored settings that it has; None: it takes none. `knows_places`: it
    reads in the metadata where logs are.
    """

    node: NodeId
    address: str
    pid: int
    incarnation: str
    cluster_id: str
    settings_revision: int | None = None
    knows_places: bool = True


@dataclass(frozen=True, slots=True)
class RenewLease(Request[NodeLease]):
    """The heartbeat of a node.

    Refused(IGNORED_OPERATION) when its session is over; INNER while calls do not reach the node and
    others do: its lease runs out unless that changes.
    """

    node: NodeId
    session: int
    stopping: bool
    settings_revision: int | None = None


@dataclass(frozen=True, slots=True)
class LeaveCluster(Request[None]):
    """A node leaves; no effect when its session is over."""

    node: NodeId
    session: int


@dataclass(frozen=True, slots=True)
class NodeAbsent:
    """Nothing listens any more at the address of the node of this session."""

    node: NodeId
    session: int


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The operating system reports that the process of this node has ended."""

    node: NodeId
    pid: int


@dataclass(frozen=True, slots=True)
class CheckLeases:
    """A timer: end expired leases."""


@dataclass(frozen=True, slots=True)
class ProbeNodes:
    """A timer of the NodeProbe: ask each node for its status."""


@dataclass(frozen=True, slots=True)
class CloseCluster:
    """The cluster stops: move no channels of stopping nodes."""


RegistrarMessage = (
    RegisterNode
    | RenewLease
    | LeaveCluster
    | NodeAbsent
    | ProcessEnded
    | CheckLeases
    | CloseCluster
)
