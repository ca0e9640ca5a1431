"""The nodes that are registered now, each with a proxy to call it.

Written by the Registrar (or fixed, where the only node is in this process); frozen by the Balancer,
found silent by the NodeProbe.
It outlives these actors, so a restart of one is not a change of nodes.
"""

from collections.abc import Iterable
from typing import Final

from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import NodeId
from broker.model.master.live_config import StoredSettings
from broker.ports.nodes import NodeControl, Probe

UNREACHED_PROBES: Final = 8
"""A node that left so many probes in a row unanswered is out of reach, not only slow: two leases at
least, counted in probes, so that a pause of this process is not taken for one of the node."""


class LiveNodes:
    """Proxies of the nodes by id. A node that registers again is another object than before."""

    def __init__(self, fixed: Iterable[NodeControl] = ()) -> None:
        self._nodes = {node.node_id: node for node in fixed}
        self._stopping: set[NodeId] = set()
        self._frozen: set[NodeId] = set()
        self._heard: set[NodeId] = set()
        self._unanswered: dict[NodeId, int] = {}
        """Probes in a row that did not reach it; nodes that were not probed yet are missing."""
        self._refusing: set[NodeId] = set()
        """Those that refused the newest probe: they are there, and would serve nothing."""
        self.sessions: dict[NodeId, int] | None = None
        """Those that are not over; None: the records of nodes were not read from the store yet."""
        self.consumption_paused: bool | None = None
        """Sent to nodes with each lease; None: not read from the store yet."""
        self.pause_revision = 0
        """Of the record that the above was taken from; 0: there was none."""
        self.settings: StoredSettings | None = None
        """Sent to nodes that have another revision; None: not read from the store yet."""
        self.settings_revisions: dict[NodeId, int | None] = {}
        """Of the settings that each node said it has; None: it is too old to take any."""

    def find(self, node_id: NodeId | None) -> NodeControl | None:
        """The node; None when it is not registered."""
        return None if node_id is None else self._nodes.get(node_id)

    def all(self) -> tuple[NodeControl, ...]:
        """Every node, sorted by id."""
        return tuple([self._nodes[node_id] for node_id in sorted(self._nodes)])

    def accepting(self) -> frozenset[NodeId]:
        """Nodes that may get channels."""
        return frozenset(self._nodes) - self._stopping - self._frozen

    def reachable(self) -> frozenset[NodeId]:
        """Those of `accepting` that are not silent; if there are none, all of them."""
        accepting = self.accepting()
        return accepting - self.silent() or accepting

    def silent(self) -> frozenset[NodeId]:
        """Those that did not answer the newest probe, or refused it."""
        unanswered = [node for node, probes in self._unanswered.items() if probes]
        return frozenset(unanswered) | self._refusing

    def is_out_of_reach(self, node_id: NodeId) -> bool:
        """Whether the last UNREACHED_PROBES did not reach it."""
        return self._unanswered.get(node_id, 0) >= UNREACHED_PROBES

    def warnings(self) -> list[str]:
        """A sentence for each node out of reach."""
        return [
            f"node {it.node_id} is registered, and answers none of the coordinator's calls to"
            f" {it.address}: open the port, or start it with another --advertise HOST[:PORT]"
            for it in self.all()
            if self.is_out_of_reach(it.node_id)
        ]

    def could_replace(self) -> frozenset[NodeId]:
        """Those of `accepting` that answered the newest probe."""
        return (self.accepting() & self._unanswered.keys()) - self.silent()

    def probed(self, node: NodeControl, found: Probe) -> int:
        """Note how a probe ended; how many in a row did not reach it. 0 for a node that is gone."""
        if self.find(node.node_id) is not node:
            return 0
        self._refusing.discard(node.node_id)
        if found is Probe.REFUSED:
            self._refusing.add(node.node_id)
        before = self._unanswered.get(node.node_id, 0)
        self._unanswered[node.node_id] = before + 1 if found is Probe.UNREACHED else 0
        return self._unanswered[node.node_id]

    def frozen(self) -> tuple[NodeId, ...]:
        """Frozen nodes, sorted: they are to be emptied."""
        return tuple(sorted(self._frozen))

    def freeze(self, nodes: Iterable[NodeId], defreeze: Iterable[NodeId]) -> None:
        """Freeze and defreeze; unknown ids are ignored."""
        self._frozen |= {node for node in nodes if node in self._nodes}
        self._frozen -= set(defreeze)

    def put(self, node: NodeControl) -> None:
        """Add a node; an earlier one with this id is dropped."""
        # This ends pending calls to the earlier process, which may never answer.
        self.drop(node.node_id)
        self._nodes[node.node_id] = node

    def retire(self, node_id: NodeId) -> None:
        """The node is stopping: it stays, and gets no more channels."""
        self._stopping.add(node_id)

    def heard(self, node_id: NodeId) -> None:
        """The node has a lease of this coordinator."""
        self._heard.add(node_id)

    def is_confirmed(self, node_id: NodeId) -> bool:
        """Whether this coordinator has heard from the node."""
        return node_id in self._heard

    def begin_session(self, node_id: NodeId, session: int) -> None:
        """The node has this session from now on."""
        self.sessions = {**(self.sessions or {}), node_id: session}

    def end_session(self, node_id: NodeId) -> None:
        """The session of the node is over; its channels may have other owners later."""
        if self.sessions is not None:
            self.sessions.pop(node_id, None)

    def tick_refusal(self, node_id: NodeId, session: int) -> Refusal | None:
        """Why the node gets no ticks in this session; None while the session is not over.

        ON_SHUTDOWN: it is not known yet which sessions there are.
        """
        if self.sessions is None:
            cause = "the coordinator has not read yet which nodes have a session; try again soon"
            return Refusal(StreamingCode.ON_SHUTDOWN, cause)
        if self.sessions.get(node_id) == session:
            return None
        return Refusal(
            StreamingCode.IGNORED_OPERATION,
            f"session {session} of node {node_id} is over: its lease expired, the node left, or"
            " nothing listened at its address; register again",
        )

    def has_settings(self, node_id: NodeId, revision: int | None) -> None:
        """The node has the settings of this revision; None: it is too old to take any."""
        if node_id in self._nodes:
            self.settings_revisions[node_id] = revision

    def drop(self, node_id: NodeId) -> None:
        """Remove the node; pending calls to it end."""
        self.end_session(node_id)
        self.settings_revisions.pop(node_id, None)
        self._heard.discard(node_id)
        self._stopping.discard(node_id)
        self._frozen.discard(node_id)
        self._unanswered.pop(node_id, None)
        self._refusing.discard(node_id)
        node = self._nodes.pop(node_id, None)
        if node is not None:
            node.release()
