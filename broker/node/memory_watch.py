"""Keeps the memory of the process within bounds.

It returns freed memory to the system, gives the tails less while the rest of the process takes
much, and seals segments of collections while the node is short of memory: of all pchannels the
largest first.

Why freed memory has to be returned: after a load the allocator keeps the pages of all that was
freed, hundreds of megabytes, because a few small blocks among them are still in use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from actors import Actor, ActorError, Context, Envelope
from broker.core.log.resident_memory import ResidentMemory
from broker.core.segments.segment_sealing import SealReason, largest_first, memory_pressure
from broker.model.ids import SegmentId
from broker.node.appender_messages import SealSegments
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel


@dataclass(frozen=True, slots=True)
class LookAtMemory:
    """A timer: check the memory of the process."""


class MemoryWatch(Actor[LookAtMemory]):
    """See the module."""

    _context: Context[LookAtMemory]

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._resident = ResidentMemory(node.limits.tail_total_bytes_max)
        self._sealed = self._trims = 0
        self._quiet_until_s = 0.0

    async def started(self, context: Context[LookAtMemory]) -> None:
        """Check every `memory_look_s`."""
        self._context = context
        context.on_beat(self._node.limits.memory_look_s, LookAtMemory())

    async def receive(self, batch: Sequence[Envelope[LookAtMemory]]) -> None:
        """Check once, however many timers are due."""
        await self._stay_within()
        self._seal_for_memory()

    def statistics(self) -> Mapping[str, int | float | str]:
        """Segments sealed for memory, returns of freed memory, and what the tails may hold."""
        return {
            "sealed": self._sealed,
            "trims": self._trims,
            "tails_bytes_max": self._resident.tails_bytes_max,
        }

    async def _stay_within(self) -> None:
        """Limit the tails to their share, and return freed memory when it is time."""
        memory, tails = self._node.memory, self._node.open_channels.memory
        resident, used = memory.process_bytes(), memory.used_bytes()
        due = self._resident.look(resident, used, tails.size_bytes)
        tails.limit(self._resident.tails_bytes_max)
        if due:
            await memory.trim()
            self._trims += 1
            self._resident.returned(memory.process_bytes(), memory.used_bytes())

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
