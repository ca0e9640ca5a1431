"""Ticks from a coordinator that is away for a while: waited for, and not for ever."""

import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from actors.testing import run_seeded
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId
from broker.ports.nodes import Unreachable
from broker.remote.calls import Calls
from broker.remote.remote_coordinator import RESERVE_S, RETRY_S_MAX, RemoteTicks
from schemas.generated.tidemark import v1

NODE = NodeId(3)


def ticks_over(calls: Calls, seed: int = 1, session: Callable[[], int] = lambda: 7) -> RemoteTicks:
    return RemoteTicks(calls, random.Random(seed), NODE, session)


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
        ticks = await ticks_over(calls, seed).reserve(7)
        assert (ticks.first, ticks.count) == (5, 7)
        assert anyio.current_time() <= calls.back_s + RETRY_S_MAX
        assert calls.asked < 50

    run_seeded(seed, scenario)


def test_a_coordinator_that_stays_away_is_told_and_one_that_refuses_is_told_at_once() -> None:
    async def scenario() -> None:
        began_s = anyio.current_time()
        with pytest.raises(Unreachable):
            await ticks_over(CallsFake(began_s + 60.0)).reserve(1)
        assert anyio.current_time() - began_s <= RESERVE_S
        refusing = CallsFake(0.0, StreamingCode.INNER)
        with pytest.raises(Refused, match="not now"):
            await ticks_over(refusing).reserve(1)
        assert refusing.asked == 1

    run_seeded(9, scenario)


def test_a_coordinator_that_does_not_know_yet_who_has_a_session_is_asked_again() -> None:
    class Starting(CallsFake):
        async def call(self, path: str, request: Any, answer: Any, *, deadline_s: float) -> Any:
            if anyio.current_time() < self.back_s:
                raise Refused(StreamingCode.ON_SHUTDOWN, "has not read yet")
            return await super().call(path, request, answer, deadline_s=deadline_s)

    async def scenario() -> None:
        began_s = anyio.current_time()
        assert (await ticks_over(Starting(began_s + 1.0)).reserve(7)).count == 7
        assert anyio.current_time() - began_s <= 1.0 + RETRY_S_MAX
        began_s = anyio.current_time()
        with pytest.raises(Refused, match="has not read yet"):
            await ticks_over(Starting(began_s + 60.0)).reserve(1)
        assert anyio.current_time() - began_s <= RESERVE_S

    run_seeded(3, scenario)


class SessionsFake(Calls):
    """Gives ticks to session `living` of the node; `meanwhile` happens before an answer."""

    def __init__(self, living: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        self._living = living
        self._meanwhile = meanwhile
        self.asked: list[tuple[int, int]] = []

    async def call(self, path: str, request: Any, answer: Any, *, deadline_s: float) -> Any:
        self.asked.append((request.node_id, request.session))
        self._meanwhile()
        if request.session != self._living:
            raise Refused(StreamingCode.IGNORED_OPERATION, "session 7 of node 3 is over")
        return v1.ReserveTicksResponse(first=5, count=request.count)


def test_a_node_says_which_session_it_has_and_is_refused_as_without_a_lease_when_it_is_over() -> (
    None
):
    async def scenario() -> None:
        living, over = SessionsFake(7), SessionsFake(8)
        assert (await ticks_over(living).reserve(2)).first == 5
        assert living.asked == [(3, 7)]
        with pytest.raises(Refused, match="session 7 of node 3 is over") as caught:
            await ticks_over(over).reserve(2)
        assert caught.value.refusal.code is StreamingCode.ON_SHUTDOWN
        assert over.asked == [(3, 7)]

    run_seeded(10, scenario)


def test_a_node_that_joined_again_while_it_was_refused_asks_in_its_new_session() -> None:
    async def scenario() -> None:
        sessions = [7]
        calls = SessionsFake(8, lambda: sessions.append(8))
        ticks = await ticks_over(calls, session=lambda: sessions[-1]).reserve(2)
        assert ticks.count == 2
        assert calls.asked == [(3, 7), (3, 8)]

    run_seeded(11, scenario)


def test_a_node_whose_session_changes_all_the_time_is_told_in_time() -> None:
    async def scenario() -> None:
        began_s, number = anyio.current_time(), iter(range(100_000))
        with pytest.raises(Refused) as caught:
            await ticks_over(SessionsFake(-1), session=lambda: next(number)).reserve(2)
        assert caught.value.refusal.code is StreamingCode.ON_SHUTDOWN
        assert anyio.current_time() - began_s <= RESERVE_S

    run_seeded(12, scenario)
