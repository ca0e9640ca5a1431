"""Looks at disk and memory every second, so that appends slow down before either is full.

Beside the log, which may fail first: then the reserve is released here, and the log opens again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from actors import Actor, Context, Envelope, Request
from broker.node.state.node_runtime import NodeRuntime

LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class LookAtDisk(Request[None]):
    """A timer."""


class DiskWatch(Actor[LookAtDisk]):
    """See the module."""

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node

    async def started(self, context: Context[LookAtDisk]) -> None:
        """Look every second."""
        context.every(LOOK_S, LookAtDisk())

    async def receive(self, batch: Sequence[Envelope[LookAtDisk]]) -> None:
        """Look once, however many timers are due."""
        node = self._node
        await node.room.look()
        marks, memory = node.limits.marks, node.memory
        used = memory.process_bytes(), marks.memory_bytes or memory.total_bytes()
        node.pressure.look(node.room.space, used, marks)
        for envelope in batch:
            envelope.reply(None)

    def statistics(self) -> Mapping[str, int | float | str]:
        """Whether messages are refused, and the levels of disk and memory (0 normal, 3 refuse)."""
        pressure = self._node.pressure
        return {
            "full": int(self._node.room.refusal is not None),
            "disk": int(pressure.disk),
            "memory": int(pressure.memory),
            "bytes_s": pressure.limit.bytes_s,
        }
