"""At which rate appends are taken: the words of Milvus's rate limit, and the worst of several."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from broker.core.pressure.watermarks import Level, Watermarks, slow_bytes_s


class RateState(IntEnum):
    """Numbers of `milvus.proto.streaming.WALRateLimitState`."""

    NORMAL = 1
    SLOWDOWN = 2
    REJECT = 3


@dataclass(frozen=True, slots=True)
class RateLimit:
    """`bytes_s`: of SLOWDOWN alone."""

    state: RateState = RateState.NORMAL
    bytes_s: int = 0


UNLIMITED: Final = RateLimit()
REJECTED: Final = RateLimit(RateState.REJECT)


def limit_at(level: Level, used: float, marks: Watermarks) -> RateLimit:
    """What a level means for appends."""
    if level is Level.REFUSE:
        return REJECTED
    if level is Level.SLOW:
        return RateLimit(RateState.SLOWDOWN, slow_bytes_s(used, marks))
    return UNLIMITED


def worst(limits: Iterable[RateLimit]) -> RateLimit:
    """The one that holds: of two that slow down, the slower."""
    return max(limits, key=lambda it: (it.state, -it.bytes_s), default=UNLIMITED)
