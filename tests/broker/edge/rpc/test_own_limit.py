"""A producer is told of its limit while that slows it, and when it no longer does."""

from asyncio import get_running_loop

import anyio
import pytest

from actors.testing import run_seeded
from broker.core.pressure.rate_limit import UNLIMITED, RateLimit, RateState
from broker.edge.rpc.own_limit import OWN_LIMIT_S, OwnLimit

SLOW = RateLimit(RateState.SLOWDOWN, 1000)


class Told:
    """What a producer is told, and when."""

    def __init__(self) -> None:
        self.own = OwnLimit(self._changed)
        self.began_s = get_running_loop().time()
        self.limits: list[tuple[float, RateLimit]] = []

    def _changed(self) -> None:
        self.limits.append((get_running_loop().time() - self.began_s, self.own.limit))


def test_a_limit_is_lifted_some_time_after_the_wait_though_nothing_else_happens() -> None:
    async def scenario() -> None:
        told = Told()
        told.own.slowed(1000, wait_s=3.0)
        await anyio.sleep(60)
        assert told.limits == [(0.0, SLOW), (pytest.approx(3.0 + OWN_LIMIT_S), UNLIMITED)]

    run_seeded(1, scenario)


def test_a_limit_that_slows_again_is_lifted_after_the_last_wait() -> None:
    async def scenario() -> None:
        told = Told()
        for _ in range(10):
            told.own.slowed(1000)
            await anyio.sleep(OWN_LIMIT_S - 1)
        await anyio.sleep(60)
        assert [limit for _, limit in told.limits] == [*[SLOW] * 10, UNLIMITED]
        assert told.limits[-1][0] == pytest.approx(9 * (OWN_LIMIT_S - 1) + OWN_LIMIT_S)
        told.own.slowed(1000)
        await anyio.sleep(60)
        assert told.own.limit is UNLIMITED, "each time"

    run_seeded(2, scenario)


def test_a_refusal_beside_a_longer_wait_does_not_shorten_that() -> None:
    async def scenario() -> None:
        told = Told()
        told.own.slowed(1000)
        await anyio.sleep(1)
        told.own.slowed(1000, wait_s=4.8)
        told.own.slowed(1000)
        await anyio.sleep(60)
        ((lifted_s, limit),) = told.limits[3:]
        assert limit is UNLIMITED
        assert lifted_s == pytest.approx(1 + 4.8 + OWN_LIMIT_S)

    run_seeded(4, scenario)


def test_a_stream_that_has_ended_is_told_nothing() -> None:
    async def scenario() -> None:
        told = Told()
        told.own.close()
        told.own.slowed(1000)
        told.own.close()
        await anyio.sleep(60)
        assert told.limits == [(0.0, SLOW)]

    run_seeded(3, scenario)
