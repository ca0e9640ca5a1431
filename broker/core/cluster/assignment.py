"""The life of a pchannel in the coordinator's table, and the versioned table that clients see.

Owns the transitions. Never persists: a caller saves what a transition returns before it acts on it.

    UNINITIALIZED(term 1) --assign--> ASSIGNING(term + 1) --served--> ASSIGNED
    ASSIGNED --lost, term equal--> UNAVAILABLE --assign--> ASSIGNING(term + 1)
    ASSIGNING --assign--> ASSIGNING(term + 1)
    any --taken by a node itself--> ASSIGNING(larger term) --served--> ASSIGNED

The last line is a node that restarts a channel by itself: it takes the next term, then serves.
A transition that does not apply returns the same object, so `is` tells whether anything changed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from broker.model.channel import (
    AccessMode,
    Assignment,
    AssignmentVersion,
    NodeAssignment,
    PChannel,
    PChannelState,
)
from broker.model.ids import NodeId, PChannelName, Term

UNASSIGNED_TERM = Term(1)
"""The term of a pchannel that nobody ever owned; the first owner has 2."""


STREAMING_VERSION = 2
"""What this program knows. Clients of a cluster of a lower one would write elsewhere."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A node that may still hold a channel at this term."""

    node: NodeId
    term: Term


@dataclass(frozen=True, slots=True)
class PChannelMeta:
    """One pchannel as the coordinator records it.

    `histories` are other nodes that may still hold an older term, one entry a node, so it is
    shorter than the number of nodes. The owner itself is not among them: it closes its own older
    term when it opens the new one. `assigned_ms` is when it was last served,
    `moved_ms` when it was last moved for balance; 0 for never.
    """

    name: PChannelName
    term: Term = UNASSIGNED_TERM
    state: PChannelState = PChannelState.UNINITIALIZED
    node: NodeId | None = None
    access: AccessMode = AccessMode.READ_WRITE
    histories: tuple[Owner, ...] = ()
    assigned_ms: int = 0
    moved_ms: int = 0


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A live node and where clients reach it."""

    node: NodeId
    address: str


def access_at(streaming_version: int) -> AccessMode:
    """How channels are to be served: to readers only until streaming is enabled."""
    return AccessMode.READ_WRITE if streaming_version > 0 else AccessMode.READ_ONLY


def assign(meta: PChannelMeta, node: NodeId, access: AccessMode | None = None) -> PChannelMeta:
    """Give the channel to `node` at the next term; nothing changes when it serves it already so.

    `access` None: as before.
    """
    access = meta.access if access is None else access
    if meta.state is PChannelState.ASSIGNED and (meta.node, meta.access) == (node, access):
        return meta
    return replace(
        meta,
        term=Term(meta.term + 1),
        state=PChannelState.ASSIGNING,
        node=node,
        access=access,
        histories=_former_owners(meta, node),
    )


def taken(meta: PChannelMeta, node: NodeId, term: Term) -> PChannelMeta:
    """`node` took a higher `term` by itself, at which it does not serve yet."""
    assert term > meta.term, (term, meta)
    return replace(assign(lost(meta, meta.term), node), term=term)


def served(meta: PChannelMeta, node: NodeId, term: Term, now_ms: int) -> PChannelMeta:
    """`node` serves the channel at `term`; nothing changes when that is not what was agreed on."""
    agreed = meta.state is PChannelState.ASSIGNING and (meta.node, meta.term) == (node, term)
    if not agreed:
        return meta
    return replace(meta, state=PChannelState.ASSIGNED, histories=(), assigned_ms=now_ms)


def lost(meta: PChannelMeta, term: Term) -> PChannelMeta:
    """Somebody found the channel dead at `term`; a report about another term is stale."""
    if meta.state is not PChannelState.ASSIGNED or meta.term != term:
        return meta
    return replace(meta, state=PChannelState.UNAVAILABLE)


def tabulate(
    version: AssignmentVersion,
    nodes: Iterable[NodeAddress],
    metas: Iterable[PChannelMeta],
    control_host: PChannelName,
    streaming_version: int = STREAMING_VERSION,
) -> Assignment:
    """The table clients see: every live node, also an empty one, with the channels it serves.

    Only channels in state ASSIGNED on a live node are listed, in name order.
    """
    held: dict[NodeId, list[PChannel]] = {}
    for meta in sorted(metas, key=lambda meta: meta.name):
        if meta.state is PChannelState.ASSIGNED and meta.node is not None:
            held.setdefault(meta.node, []).append(PChannel(meta.name, meta.term, meta.access))
    listed = tuple(
        NodeAssignment(live.node, live.address, tuple(held.get(live.node, ())))
        for live in sorted(nodes, key=lambda live: live.node)
    )
    return Assignment(version, listed, control_host, streaming_version)


def _former_owners(meta: PChannelMeta, following: NodeId) -> tuple[Owner, ...]:
    """The histories plus the owner so far, without the node that follows."""
    owners = {owner.node: owner for owner in meta.histories}
    if meta.node is not None:
        owners[meta.node] = Owner(meta.node, meta.term)
    owners.pop(following, None)
    return tuple(owners.values())
