"""What the disk and the memory of a node allow: at which rate appends are taken, or why none is.

Looked at every second by DiskWatch. Reads, drops and purges never ask: they free what is short.
"""

import anyio

from broker.core.pressure.rate_limit import UNLIMITED, RateLimit, RateState, limit_at, worst
from broker.core.pressure.watermarks import Level, Watermarks, level_after
from broker.model.failure import Refusal, StreamingCode
from broker.node.state.node_limits import DISK_ROOM, PressureMarks
from broker.ports.space.disk_room import DiskSpace

_TO_DO = (
    "drop or purge collections, lower their retention, or give the disk more room",
    "lower tail_total_bytes_max and open_txn_bytes_max, or give the process more memory",
)


class NodePressure:
    """One per node. `limit` holds for all appends from outside."""

    def __init__(self) -> None:
        self.limit = UNLIMITED
        self.disk = Level.NORMAL
        self.memory = Level.NORMAL
        self.changed = anyio.Event()
        """Set, and replaced, when `limit` changes."""
        self._causes: list[str] = []

    @property
    def refusal(self) -> Refusal | None:
        """Why messages are refused; None: they are not."""
        if self.limit.state is not RateState.REJECT:
            return None
        return Refusal(StreamingCode.RATE_LIMIT_REJECTED, f"append refused: {self._causes[0]}")

    def warnings(self) -> list[str]:
        """What an operator should know now: what is short, what it means, what to do."""
        return [*self._causes]

    def look(self, space: DiskSpace | None, memory: tuple[int, int], marks: PressureMarks) -> None:
        """Take in new figures. `space`: None when unknown. `memory`: bytes used, and in all."""
        disk_used = 0.0
        disk_marks = marks.disk
        if space is not None and space.total:
            disk_used = 1 - space.free / space.total
            disk_marks = marks.disk.with_room(space.total, *DISK_ROOM)
        used, total = memory
        memory_used = used / total if total else 0.0
        self.disk = level_after(self.disk, disk_used, disk_marks)
        self.memory = level_after(self.memory, memory_used, marks.memory)
        limits = (
            limit_at(self.disk, disk_used, disk_marks),
            limit_at(self.memory, memory_used, marks.memory),
        )
        free = space.free if space is not None else 0
        causes = [
            _cause("disk", self.disk, f"{free} bytes of the disk are free", limits[0], _TO_DO[0]),
            _cause(
                "memory", self.memory, f"the process uses {used} of {total} bytes of memory",
                limits[1], _TO_DO[1],
            ),
        ]  # fmt: skip
        order = (0, 1) if self.disk >= self.memory else (1, 0)
        self._causes = [causes[it] for it in order if causes[it]]
        self._adopt(worst(limits))

    def _adopt(self, limit: RateLimit) -> None:
        if limit != self.limit:
            self.limit = limit
            changed, self.changed = self.changed, anyio.Event()
            changed.set()


def _cause(what: str, level: Level, found: str, limit: RateLimit, to_do: str) -> str:
    match level:
        case Level.NORMAL:
            return ""
        case Level.WARN:
            effect = "appends go on"
        case Level.SLOW:
            effect = f"appends are slowed to {limit.bytes_s} bytes/s"
        case Level.REFUSE:
            effect = "appends are refused until there is room; reads, drops and purges go on"
    return f"{what} watermark {level.name}: {found}; {effect}; {to_do}"


def marks_of(warn_percent: int, slow_percent: int, refuse_percent: int) -> Watermarks:
    """Marks from settings in percent; 100: never."""
    return Watermarks(warn_percent / 100, slow_percent / 100, refuse_percent / 100)
