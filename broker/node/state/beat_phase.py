"""At which of a few phases of an interval the periodic work of a pchannel is done."""

from functools import lru_cache
from typing import Final

from broker.model.ids import PChannelName

PHASES: Final = 4


@lru_cache(maxsize=4096)
def phase_of(name: PChannelName) -> int:
    """From 0 to PHASES - 1; consecutively numbered pchannels get consecutive phases."""
    return sum(name.encode()) % PHASES


def beat_offset_s(name: PChannelName, tick_interval_s: float) -> float:
    """The offset for rarer work: at a beat of ticks, which wakes the process anyway."""
    return phase_of(name) * tick_interval_s
