"""Seals segments of collections while the node is short of memory, and returns what is unused.

It compares all pchannels and the memory of the process, and has the Appenders seal the largest
segments first.

Why unused memory has to be returned: after a load the allocator keeps the pages of all that was
freed, hundreds of megabytes, because a few small blocks among them are still in use.
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


UNUSED_BYTES_MIN = 16 << 20
"""Less is not worth a trim: the process will need it soon."""


class MemoryWatch(Actor[LookAtMemory]):
    """See the module."""

    _context: Context[LookAtMemory]

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._sealed = self._trims = 0
        self._unused_bytes = 0
        """What was unused at the last look."""
        self._returned_bytes = 0
        """How much of that has no pages any more: the allocator still counts it as its own."""
        self._quiet_until_s = 0.0

    async def started(self, context: Context[LookAtMemory]) -> None:
        """Check every `memory_look_s`."""
        self._context = context
        context.on_beat(self._node.limits.memory_look_s, LookAtMemory())

    async def receive(self, batch: Sequence[Envelope[LookAtMemory]]) -> None:
        """Check once, however many timers are due."""
        await self._return_unused()
        self._seal_for_memory()

    def statistics(self) -> Mapping[str, int | float | str]:
        """How many segments were sealed for memory, and how often unused memory was returned."""
        return {"sealed": self._sealed, "trims": self._trims}

    async def _return_unused(self) -> None:
        """Return what was unused at two looks in a row: under load it is used again at once."""
        memory = self._node.memory
        unused_bytes, before = memory.unused_bytes(), self._unused_bytes
        self._unused_bytes = unused_bytes
        # What is used again has pages again.
        self._returned_bytes = min(self._returned_bytes, unused_bytes)
        if min(unused_bytes, before) - self._returned_bytes >= UNUSED_BYTES_MIN:
            await memory.trim()
            self._trims += 1
            self._unused_bytes = self._returned_bytes = memory.unused_bytes()

    def _seal_for_memory(self) -> None:
        """Seal when there is a reason to. Free on a node without collections."""
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
