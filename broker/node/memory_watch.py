"""Seals segments of collections while the node is short of memory, the largest first.

It compares all pchannels and the memory of the process; the Appenders do the sealing.
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
    """A timer: check whether segments must be sealed to free memory."""


class MemoryWatch(Actor[LookAtMemory]):
    """See the module."""

    _context: Context[LookAtMemory]

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._sealed = 0
        self._quiet_until_s = 0.0

    async def started(self, context: Context[LookAtMemory]) -> None:
        """Check every `memory_look_s`."""
        self._context = context
        context.on_beat(self._node.limits.memory_look_s, LookAtMemory())

    async def receive(self, batch: Sequence[Envelope[LookAtMemory]]) -> None:
        """Check once, however many timers are due. Free on a node without collections."""
        channels = [it for it in self._node.open_channels.all() if it.segments.growing_bytes]
        if not channels:
            return
        memory, limits = self._node.memory, self._node.limits
        growing_bytes = sum(it.segments.growing_bytes for it in channels)
        total_bytes, process_bytes = memory.total_bytes(), memory.process_bytes()
        found = memory_pressure(growing_bytes, process_bytes, total_bytes, limits.pressure)
        now_s = self._context.clock.monotonic_s()
        # Only this reason pauses: sealing lowers the growing bytes at once, but the memory of the
        # process only later.
        if found is None or (found[0] is SealReason.NODE_MEMORY and now_s < self._quiet_until_s):
            return
        why, growing_bytes_max = found
        if why is SealReason.NODE_MEMORY:  # memory shrinks a while after the sealing
            self._quiet_until_s = now_s + limits.memory_pause_s
        self._seal(channels, why, growing_bytes_max)

    def statistics(self) -> Mapping[str, int | float | str]:
        """How many segments were sealed for memory."""
        return {"sealed": self._sealed}

    def _seal(
        self, channels: Sequence[OpenChannel], why: SealReason, growing_bytes_max: int
    ) -> None:
        sizes: list[tuple[int, SegmentId]] = []
        for each in channels:
            sizes += [(it.size_bytes, it.id) for it in each.segments.growing()]
        chosen = frozenset(largest_first(sizes, growing_bytes_max))
        for each in channels:
            ids = tuple([it.id for it in each.segments.growing() if it.id in chosen])
            if ids:
                self._tell(each, SealSegments(ids, why))

    def _tell(self, channel: OpenChannel, message: SealSegments) -> None:
        try:
            channel.appender.tell(message)
        except ActorError:  # full or dying: the next check comes soon
            return
        self._sealed += len(message.ids)
