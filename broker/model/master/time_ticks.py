"""Time ticks that reporters promise, and the channels that get them."""

from dataclasses import dataclass
from enum import IntEnum

from broker.model.ids import TimeTick


class TickOrigin(IntEnum):
    """Who reports the ticks; numbers of `tidemark.v1.TickSource`."""

    PROXIES = 1
    WRITE_NODES = 2


class TickPolicy(IntEnum):
    """When a tick passes; numbers of `tidemark.v1.TickRule`. See `broker/core/time/barrier.py`."""

    SOFT = 1
    LIST = 2
    MINIMUM = 3


@dataclass(frozen=True, slots=True)
class TickSettings:
    """`peers`: the ids of those that must report. `channels`: each gets every tick that passes.

    `interval_ms`: the least distance of two ticks; only of SOFT.
    """

    peers: tuple[int, ...]
    channels: tuple[str, ...]
    policy: TickPolicy
    interval_ms: int = 0


@dataclass(frozen=True, slots=True)
class TickReport:
    """The newest tick that a peer has reported since the coordinator started; 0 for none."""

    peer: int
    tick: TimeTick


@dataclass(frozen=True, slots=True)
class TimeTicksView:
    """The ticks of one origin. `settings` None: nobody has set any, or they were closed.

    `passed`: the newest tick that passed the barrier; `sent`: the newest that every channel has.
    `error`: why the newest is not everywhere yet. `waiting`: ticks behind it. `skipped`: ticks that
    some peer left out.
    """

    origin: TickOrigin
    settings: TickSettings | None
    reports: tuple[TickReport, ...] = ()
    passed: TimeTick = TimeTick(0)
    sent: TimeTick = TimeTick(0)
    waits_for: tuple[int, ...] = ()
    error: str = ""
    waiting: int = 0
    skipped: int = 0
