"""Leases of cluster nodes: who may be the node of an id, and until when.

A session is the time for which one process is the node of an id; session numbers are never reused.
An expired lease removes nobody by itself: the coordinator acts on it, and a renewal that arrives
late but before that still counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class NodeMember:
    """The process that is a node now; `until_s` is a time of the coordinator's clock.

    `incarnation` is chosen by the process at its start; "" for an older program. The pid is for
    people: in containers successive processes may have the same pid and address. `knows_places`: it
    reads in the metadata where logs are.
    """

    node: NodeId
    address: str
    pid: int
    incarnation: str
    session: int
    until_s: float
    stopping: bool = False
    knows_places: bool = True


def admit(holder: NodeMember | None, newcomer: NodeMember, now_s: float) -> NodeMember | Refusal:
    """The member that holds the node id from now on.

    The same process asking again, because the answer was lost, keeps its session. Another process
    is refused (RESOURCE_ACQUIRED) until the holder's lease has expired.
    """
    if holder is None:
        return newcomer
    if _process(holder) == _process(newcomer):
        return replace(holder, until_s=newcomer.until_s)
    if holder.until_s <= now_s:
        return newcomer
    return Refusal(
        StreamingCode.RESOURCE_ACQUIRED,
        f"node id {holder.node} is in use by process {holder.pid} at {holder.address}; stop it, or"
        " give this node another --node-id",
    )


def _process(member: NodeMember) -> tuple[str, int, str]:
    return member.address, member.pid, member.incarnation


def renewed(
    holder: NodeMember | None, session: int, until_s: float, *, stopping: bool
) -> NodeMember | Refusal:
    """The member with a renewed lease; `stopping` stays set once it was."""
    if holder is None or holder.session != session:
        return Refusal(
            StreamingCode.IGNORED_OPERATION,
            f"session {session} is over: its lease expired or the node left; register again",
        )
    return replace(holder, until_s=until_s, stopping=stopping or holder.stopping)


@dataclass(frozen=True, slots=True)
class StartupGrace:
    """How long a starting cluster waits for more nodes, so that the first one does not get all.

    With `expected` nodes: until so many are there, at most `expected_s` seconds from the start.
    With 0 (unknown): until all former owners are back, at most `grace_s` after the first node.
    """

    expected: int = 0
    expected_s: float = 60.0
    grace_s: float = 0.0


def must_wait_for_nodes(
    patience: StartupGrace,
    here: frozenset[NodeId],
    owned: frozenset[NodeId],
    started_s: float,
    first_s: float,
) -> bool:
    """Whether to assign no channel yet.

    `here`: the nodes that may take channels; `owned`: the former owners. `started_s` and `first_s`:
    seconds since the coordinator started, and since the first node joined.
    """
    if not here:
        return True
    if patience.expected:
        return len(here) < patience.expected and started_s < patience.expected_s
    # Without former owners nothing shows who is missing, so the whole grace is waited for.
    return not (owned and owned <= here) and first_s < patience.grace_s


def expired(members: Iterable[NodeMember], now_s: float) -> tuple[NodeMember, ...]:
    """The members whose lease has expired."""
    return tuple([member for member in members if member.until_s <= now_s])
