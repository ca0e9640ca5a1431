"""How far ticks are from the clock of a host, and the sentence that warns of it.

Ticks follow the clock of the leading coordinator and never go back. So a leader whose clock is
ahead takes them with it: transactions expire at once, and delayed messages come early.
"""

from typing import Final

from broker.core.time.tso import physical_ms_of
from broker.model.ids import TimeTick

WARN_MS: Final = 5_000
"""Clocks that are set over the network differ by far less. A coordinator that takes over begins up
to a window, 3 s, ahead of its own clock."""

_TO_DO: Final = "run NTP or chrony on every host"


def ahead_ms(tick: TimeTick, asked_ms: int, answered_ms: int) -> int:
    """How far ticks are ahead of this clock, at least; negative: behind it; 0: they may agree.

    `tick` was handed out between these two times of this clock. A long wait in between, such as a
    pause of this process, is no difference.
    """
    at_ms = physical_ms_of(tick)
    # Not always in this order: the clock may have been set back meanwhile.
    earliest_ms, latest_ms = sorted((asked_ms, answered_ms))
    return max(0, at_ms - latest_ms) + min(0, at_ms - earliest_ms)


def node_warning(difference_ms: int) -> str:
    """What a node tells of `ahead_ms`; empty while the clocks agree."""
    if abs(difference_ms) <= WARN_MS:
        return ""
    where = "ahead of" if difference_ms > 0 else "behind"
    return (
        f"time ticks, which follow the clock of the leading coordinator, are"
        f" {abs(difference_ms) / 1000:.1f} s {where} the clock of this node's host: one of the two"
        f" clocks is wrong, or was; {_TO_DO}"
    )


def leader_warning(difference_ms: int) -> str:
    """What the leading coordinator tells of `ahead_ms`; its ticks are never behind its clock."""
    if difference_ms <= WARN_MS:
        return ""
    return (
        f"time ticks are {difference_ms / 1000:.1f} s ahead of the clock of this coordinator's"
        " host: this clock is behind, or that of a leader was ahead; ticks go on at half speed"
        f" until the clock has caught up; {_TO_DO}"
    )
