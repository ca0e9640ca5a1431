"""Who is a node of the cluster, and until when: the rules of a lease.

Owns the decisions. A session is one process's time as the node of an id; its number is never used
again. Never removes anybody by itself: a lease that is over is a fact to act on, and a renewal that
comes a moment late, before anybody acted, still counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class NodeMember:
    """The process that is a node now; `until_s` is a time of the coordinator's clock.

    `incarnation` is its own, made at its start; "" of an older program. Its pid is for people: in a
    container each process has the same, at the same address.
    """

    node: NodeId
    address: str
    pid: int
    incarnation: str
    session: int
    until_s: float
    stopping: bool = False


def admit(holder: NodeMember | None, newcomer: NodeMember, now_s: float) -> NodeMember | Refusal:
    """The member that the id has from now on.

    The same process asking again, because the answer was lost, gets the session it has. Another
    one is refused (RESOURCE_ACQUIRED) until the lease of the first is over.
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
    """The member with its lease prolonged; once it is stopping it stays so."""
    if holder is None or holder.session != session:
        return Refusal(
            StreamingCode.IGNORED_OPERATION,
            f"session {session} is over: its lease ran out, or the node has left; register anew",
        )
    return replace(holder, until_s=until_s, stopping=stopping or holder.stopping)


@dataclass(frozen=True, slots=True)
class StartupGrace:
    """How long a cluster that starts waits for more nodes, lest the first one gets everything.

    So many nodes are `expected`, for `expected_s` seconds from its start. 0: it is not known; then
    for `grace_s` from the first node on, or until all are back that owned channels before.
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
    """Whether nobody is given a channel yet.

    `here` may take channels, `owned` have had some. `started_s` and `first_s`: seconds since the
    start, and since a node has been here.
    """
    if not here:
        return True
    if patience.expected:
        return len(here) < patience.expected and started_s < patience.expected_s
    return not (owned and owned <= here) and first_s < patience.grace_s


def expired(members: Iterable[NodeMember], now_s: float) -> tuple[NodeMember, ...]:
    """Those whose lease is over."""
    return tuple([member for member in members if member.until_s <= now_s])
