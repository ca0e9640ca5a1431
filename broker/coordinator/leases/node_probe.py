"""Asks each node several times in a lease whether the coordinator's calls reach it.

A node that renews its lease may still be out of reach: a link that is cut one way, a firewall, a
wrong address after a move. Its channels could be neither confirmed nor given to others, and
broadcasts to them would wait for ever. So the Registrar does not renew the lease of one that is out
of reach for long, and its channels go the way of those of a lost node.
"""

from collections.abc import Mapping, Sequence

import anyio
import structlog

from actors import Actor, Context, Envelope
from actors.clock import deadline
from broker.coordinator.assignment.live_nodes import UNREACHED_PROBES, LiveNodes
from broker.coordinator.leases.messages import ProbeNodes
from broker.ports.nodes import NodeControl, Probe, probe

PROBES_PER_LEASE = 4
"""At most: a pass takes 2 s while a link is silent. One that is reached again is noticed within a
lease of 3 s or more, before it loses the one that was not renewed."""
PROBE_S_MAX = 3.0
"""Longer than a node's proxy waits for a status, so that its error is the one that is told."""

log = structlog.get_logger(__name__)


class NodeProbe(Actor[ProbeNodes]):
    """See the module. `statistics`: nodes that did not answer the newest probe."""

    _context: Context[ProbeNodes]

    def __init__(self, nodes: LiveNodes, lease_s: float) -> None:
        self._nodes = nodes
        self._lease_s = lease_s

    async def started(self, context: Context[ProbeNodes]) -> None:
        self._context = context
        context.on_beat(self._lease_s / PROBES_PER_LEASE, ProbeNodes())

    async def receive(self, batch: Sequence[Envelope[ProbeNodes]]) -> None:
        async with anyio.create_task_group() as probes:
            for node in self._nodes.all():
                probes.start_soon(self._probe, node)

    def statistics(self) -> Mapping[str, int | float | str]:
        return {"silent": len(self._nodes.silent())}

    async def _probe(self, node: NodeControl) -> None:
        found, why = Probe.UNREACHED, f"no answer in {PROBE_S_MAX:.2g} s"
        with deadline(self._context.clock, PROBE_S_MAX):
            found, why = await probe(node)
        before = self._nodes.is_out_of_reach(node.node_id)
        failed = self._nodes.probed(node, found)
        if failed == UNREACHED_PROBES:
            log.warning(
                "a node is registered and answers no call: it loses its channels when there is"
                " another node for them",
                node=node.node_id,
                address=node.address,
                error=why,
            )
        elif before and not failed:
            log.info("a node answers calls again", node=node.node_id)
