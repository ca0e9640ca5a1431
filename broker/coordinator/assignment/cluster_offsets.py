"""The offsets of every channel of the cluster, asked of all nodes at once.

A node that does not answer in time is left out, as its channels are while they move.
"""

from collections.abc import Mapping, Sequence

import anyio

from broker.coordinator.assignment.live_nodes import LiveNodes
from broker.model.channel import ChannelOffsets
from broker.model.failure import Refused
from broker.model.ids import PChannelName, TimeTick
from broker.ports.nodes import NodeControl

ANSWER_S = 1.0


class ClusterOffsets:
    """ClosedTicks (`broker/ports/closed_ticks.py`) over nodes in any process."""

    def __init__(self, nodes: LiveNodes, pchannels: Sequence[PChannelName]) -> None:
        self._nodes = nodes
        self._pchannels = tuple(pchannels)

    async def describe(self) -> Mapping[PChannelName, ChannelOffsets]:
        """The offsets of each channel; of two nodes that claim one, the newer term counts."""
        found: dict[PChannelName, ChannelOffsets] = {}

        async def ask(node: NodeControl) -> None:
            try:
                answer = await node.describe(self._pchannels)
            except Refused:
                return
            for name, offsets in answer.items():
                # While a channel moves, its earlier owner may not know yet that it lost it.
                if name not in found or found[name].term < offsets.term:
                    found[name] = offsets

        with anyio.move_on_after(ANSWER_S):
            async with anyio.create_task_group() as asking:
                for node in self._nodes.all():
                    asking.start_soon(ask, node)
        return found

    async def closed_ticks(self) -> Mapping[PChannelName, TimeTick]:
        """See ClosedTicks."""
        return {name: it.closed_tick for name, it in (await self.describe()).items()}
