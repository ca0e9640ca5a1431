"""How much of a log is kept by itself and for those who hold it, and where it begins."""

from dataclasses import dataclass
from typing import Protocol

from broker.model.ids import MessageId, TimeTick


@dataclass(frozen=True, slots=True)
class Retention:
    """Segments older than `age_ms_max`, or beyond `bytes_max` in all, are removed. 0: no limit."""

    bytes_max: int = 0
    age_ms_max: int = 0

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is ever removed."""
        return not (self.bytes_max or self.age_ms_max)


class SealedSegment(Protocol):
    """A part of a log that takes no more appends: the unit of removal."""

    @property
    def next_id(self) -> MessageId:
        """Behind its last message."""
        ...

    @property
    def last_tick(self) -> TimeTick: ...

    @property
    def size_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class HoldLimits:
    """How much of a pchannel a cursor holds back, and for how long after its last commit.

    `bytes_max` 0: cursors hold nothing.
    """

    bytes_max: int = 1 << 30
    age_s_max: int = 7 * 86_400


@dataclass(frozen=True, slots=True)
class LogStart:
    """Where a log begins now: the first id, and the tick of the newest message removed; 0: none."""

    first_id: MessageId = MessageId(0)
    removed_tick: TimeTick = TimeTick(0)

    def joined(self, other: "LogStart") -> "LogStart":
        """The later of the two."""
        return LogStart(
            max(self.first_id, other.first_id), max(self.removed_tick, other.removed_tick)
        )
