"""Ticks from a coordinator that is away for a while: waited for, and not for ever."""

import random
from typing import Any

import anyio
import pytest

from actors.testing import run_seeded
from broker.model.failure import Refused, StreamingCode
from broker.ports.nodes import Unreachable
from broker.remote.calls import Calls
from broker.remote.remote_coordinator import RESERVE_S, RETRY_S_MAX, RemoteTicks
from schemas.generated.tidemark import v1


class CallsFake(Calls):
    """Nobody answers before `back_s`; then there are ticks, or a refusal of them."""

    def __init__(self, back_s: float, refusal: StreamingCode | None = None) -> None:
        self.back_s = back_s
        self.refusal = refusal
        self.asked = 0

    async def call(self, path: str, request: Any, answer: Any, *, deadline_s: float) -> Any:
        self.asked += 1
        assert 0 < deadline_s <= RESERVE_S
        if anyio.current_time() < self.back_s:
            raise Unreachable("nobody listens", absent=True)
        if self.refusal is not None:
            raise Refused(self.refusal, "not now")
        return v1.ReserveTicksResponse(first=5, count=request.count)


@pytest.mark.parametrize("seed", range(5))
def test_a_coordinator_that_is_restarted_gives_ticks_the_moment_it_is_back(seed: int) -> None:
    async def scenario() -> None:
        calls = CallsFake(back_s=anyio.current_time() + 1.5)
        ticks = await RemoteTicks(calls, random.Random(seed)).reserve(7)
        assert (ticks.first, ticks.count) == (5, 7)
        assert anyio.current_time() <= calls.back_s + RETRY_S_MAX
        assert calls.asked < 50

    run_seeded(seed, scenario)


def test_a_coordinator_that_stays_away_is_told_and_one_that_refuses_is_told_at_once() -> None:
    async def scenario() -> None:
        began_s = anyio.current_time()
        with pytest.raises(Unreachable):
            await RemoteTicks(CallsFake(began_s + 60.0), random.Random(1)).reserve(1)
        assert anyio.current_time() - began_s <= RESERVE_S
        refusing = CallsFake(0.0, StreamingCode.INNER)
        with pytest.raises(Refused, match="not now"):
            await RemoteTicks(refusing, random.Random(1)).reserve(1)
        assert refusing.asked == 1

    run_seeded(9, scenario)
