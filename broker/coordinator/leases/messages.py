"""The messages of the Registrar. Requests that fail raise Refused."""

from dataclasses import dataclass

from actors import Request
from broker.model.ids import NodeId
from broker.ports.nodes import NodeLease


@dataclass(frozen=True, slots=True)
class RegisterNode(Request[NodeLease]):
    """A process becomes a node. Refused: see `Enrolment.register`."""

    node: NodeId
    address: str
    pid: int
    incarnation: str
    cluster_id: str


@dataclass(frozen=True, slots=True)
class RenewLease(Request[NodeLease]):
    """It is still there. Refused(IGNORED_OPERATION) when its session is over."""

    node: NodeId
    session: int
    stopping: bool


@dataclass(frozen=True, slots=True)
class LeaveCluster(Request[None]):
    """It goes; nothing happens when its session is over."""

    node: NodeId
    session: int


@dataclass(frozen=True, slots=True)
class NodeAbsent:
    """Nobody listens any more where the node of this session did."""

    node: NodeId
    session: int


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The process of this node, says the operating system of this machine."""

    node: NodeId
    pid: int


@dataclass(frozen=True, slots=True)
class CheckLeases:
    """A timer: see whose lease is over."""


@dataclass(frozen=True, slots=True)
class CloseCluster:
    """All nodes will be stopped: nobody's channels are to be moved any more."""


RegistrarMessage = (
    RegisterNode
    | RenewLease
    | LeaveCluster
    | NodeAbsent
    | ProcessEnded
    | CheckLeases
    | CloseCluster
)
