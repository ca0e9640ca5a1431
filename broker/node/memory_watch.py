"""Has segments sealed while the node is short of memory: the largest first, of all pchannels.

It looks at what grows on all open pchannels and at the process. It never seals by itself: each
Appender does that for its own.
Next: broker/core/segments/segment_sealing.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from actors import Actor, ActorError, Context, Envelope
from broker.core.segments.segment_sealing import SealReason, largest_first, memory_pressure
from broker.model.ids import SegmentId
from broker.node.appender_messages import SealSegments
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel


@dataclass(frozen=True, slots=True)
class LookAtMemory:
    """A timer: see whether segments must be sealed for want of memory."""


class MemoryWatch(Actor[LookAtMemory]):
    """See the module."""

    _context: Context[LookAtMemory]

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._sealed = 0
        self._quiet_until_s = 0.0

    async def started(self, context: Context[LookAtMemory]) -> None:
        """Look from time to time."""
        self._context = context
        context.every(self._node.limits.memory_look_s, LookAtMemory())

    async def receive(self, batch: Sequence[Envelope[LookAtMemory]]) -> None:
        """One look, however many are due. Costs nothing on a node without collections."""
        channels = [it for it in self._node.open_channels.all() if it.shards.growing_bytes]
        if not channels:
            return
        memory, limits = self._node.memory, self._node.limits
        growing_bytes = sum(it.shards.growing_bytes for it in channels)
        total_bytes, process_bytes = memory.total_bytes(), memory.process_bytes()
        found = memory_pressure(growing_bytes, process_bytes, total_bytes, limits.pressure)
        now_s = self._context.clock.monotonic_s()
        if found is None or (found[0] is SealReason.NODE_MEMORY and now_s < self._quiet_until_s):
            return
        why, growing_bytes_max = found
        if why is SealReason.NODE_MEMORY:
            self._quiet_until_s = now_s + limits.memory_pause_s
        self._seal(channels, why, growing_bytes_max)

    def statistics(self) -> Mapping[str, int | float | str]:
        """How many segments it asked to be sealed."""
        return {"sealed": self._sealed}

    def _seal(
        self, channels: Sequence[OpenChannel], why: SealReason, growing_bytes_max: int
    ) -> None:
        sizes: list[tuple[int, SegmentId]] = []
        for each in channels:
            sizes += [(it.size_bytes, it.id) for it in each.shards.growing()]
        chosen = frozenset(largest_first(sizes, growing_bytes_max))
        for each in channels:
            ids = tuple([it.id for it in each.shards.growing() if it.id in chosen])
            if ids:
                self._tell(each, SealSegments(ids, why))

    def _tell(self, channel: OpenChannel, message: SealSegments) -> None:
        try:
            channel.appender.tell(message)
        except ActorError:  # full or dying: there is another look soon
            return
        self._sealed += len(message.ids)
