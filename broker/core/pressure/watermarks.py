"""From how much of the disk or of the memory is used to what a node does about it.

A level begins at its mark and ends only when half as much again is free, so that a figure that
moves around a mark does not switch appends on and off.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

NEVER: Final = 1.0
"""A mark that is not in force."""
FASTEST_BYTES_S: Final = 16 * 1024 * 1024
STEPS: Final = 6
"""Between the marks SLOW and REFUSE the rate is halved five times: 16 MiB/s down to 512 KiB/s."""


class Level(IntEnum):
    """What a node does: nothing, warn, take appends at a lower rate, or refuse them."""

    NORMAL = 0
    WARN = 1
    SLOW = 2
    REFUSE = 3


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Shares that are used, from 0 to 1, at which a level begins. `NEVER`: it does not."""

    warn: float = NEVER
    slow: float = NEVER
    refuse: float = NEVER

    def with_room(self, total: int, warn: int, slow: int, refuse: int) -> "Watermarks":
        """The marks of a disk of `total` bytes: none begins while so many bytes are free.

        A share alone would leave hundreds of GiB of a large disk unused.
        """
        return replace(
            self,
            warn=max(self.warn, 1 - warn / total),
            slow=max(self.slow, 1 - slow / total),
            refuse=max(self.refuse, 1 - refuse / total),
        )


def level_after(before: Level, used: float, marks: Watermarks) -> Level:
    """The level when `used` is found at the level `before`."""
    level = Level.NORMAL
    for candidate, mark in _marks(marks):
        begins = mark if before < candidate else mark - (1 - mark) / 2
        if mark < NEVER and used >= begins:
            level = candidate
    return level


def slow_bytes_s(used: float, marks: Watermarks) -> int:
    """The rate of a node at level SLOW, in bytes a second: the less is left, the slower."""
    span = marks.refuse - marks.slow
    passed = (used - marks.slow) / span if span > 0 else 0.0
    step = min(STEPS - 1, max(0, int(passed * STEPS)))
    return FASTEST_BYTES_S >> step


def _marks(marks: Watermarks) -> tuple[tuple[Level, float], ...]:
    return (Level.WARN, marks.warn), (Level.SLOW, marks.slow), (Level.REFUSE, marks.refuse)
