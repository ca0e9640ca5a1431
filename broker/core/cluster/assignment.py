"""State transitions of a pchannel's assignment, and the versioned assignment table for clients.

Pure: the caller persists the result of a transition before acting on it.

    UNINITIALIZED(term 1) --assign--> ASSIGNING(term + 1) --served--> ASSIGNED
    ASSIGNED --lost, same term--> UNAVAILABLE --assign--> ASSIGNING(term + 1)
    ASSIGNING --assign--> ASSIGNING(term + 1)
    any --taken, by a node that restarts the channel--> ASSIGNING(larger term) --served--> ASSIGNED

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
"""The term of a pchannel that was never owned; the first owner has term 2."""


STREAMING_VERSION = 2
"""The version of this program. In a cluster with a lower one, clients still write elsewhere."""
BROADCAST_VERSION = 2
"""The first version with broadcasts: at 1, coordinators of Milvus still change metadata without
them. A call waits until the cluster is there."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A node that may still hold a channel at this term."""

    node: NodeId
    term: Term


@dataclass(frozen=True, slots=True)
class PChannelMeta:
    """One pchannel as the coordinator records it.

    `histories`: other nodes that may still hold an older term, one entry for each node. The owner
    is not among them: it closes its own older term when it opens the new one. `assigned_ms` is when
    it was last served, `moved_ms` when the balancer last moved it; 0 for never.
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
    """The access mode of channels: read-only until streaming is enabled."""
    return AccessMode.READ_WRITE if streaming_version > 0 else AccessMode.READ_ONLY


def assign(meta: PChannelMeta, node: NodeId, access: AccessMode | None = None) -> PChannelMeta:
    """Assign the channel to `node` at the next term; no change if the node already serves it so.

    `access` None keeps the access mode.
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
    """`node` claimed a higher `term` to restart the channel, and does not serve at it yet."""
    assert term > meta.term, (term, meta)
    # Lost first: `assign` changes nothing for a channel that this node serves already.
    return replace(assign(lost(meta, meta.term), node), term=term)


def served(meta: PChannelMeta, node: NodeId, term: Term, now_ms: int) -> PChannelMeta:
    """`node` serves the channel at `term`; no change unless that is the current assignment."""
    agreed = meta.state is PChannelState.ASSIGNING and (meta.node, meta.term) == (node, term)
    if not agreed:
        return meta
    # Serving at this term fenced every older one, so former owners are of no interest any more.
    return replace(meta, state=PChannelState.ASSIGNED, histories=(), assigned_ms=now_ms)


def lost(meta: PChannelMeta, term: Term) -> PChannelMeta:
    """The channel was found dead at `term`; a report about another term is stale."""
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
    """The table for clients: every live node with the channels it serves, perhaps none.

    Lists only channels in state ASSIGNED on a live node, by name.
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
    """The histories plus the present owner, without the next one."""
    owners = {owner.node: owner for owner in meta.histories}
    if meta.node is not None:
        owners[meta.node] = Owner(meta.node, meta.term)
    owners.pop(following, None)
    return tuple(owners.values())
