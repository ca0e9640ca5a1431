"""The worst of several limits holds."""

import pytest

from broker.core.pressure.rate_limit import (
    REJECTED,
    UNLIMITED,
    RateLimit,
    RateState,
    limit_at,
    worst,
)
from broker.core.pressure.watermarks import FASTEST_BYTES_S, Level, Watermarks

MARKS = Watermarks(0.8, 0.9, 0.96)


def slow(bytes_s: int) -> RateLimit:
    return RateLimit(RateState.SLOWDOWN, bytes_s)


@pytest.mark.parametrize(
    ("level", "limit"),
    [
        (Level.NORMAL, UNLIMITED),
        (Level.WARN, UNLIMITED),
        (Level.SLOW, slow(FASTEST_BYTES_S)),
        (Level.REFUSE, REJECTED),
    ],
)
def test_a_level_means_a_limit(level: Level, limit: RateLimit) -> None:
    assert limit_at(level, 0.9, MARKS) == limit


def test_rejected_is_worse_than_slow_and_slower_is_worse() -> None:
    assert worst([]) == UNLIMITED
    assert worst([UNLIMITED, slow(2), slow(1)]) == slow(1)
    assert worst([slow(1), REJECTED, UNLIMITED]) == REJECTED
