"""Appends of all streams share one rate while disk or memory slow them down."""

from asyncio import get_running_loop

import anyio
import pytest

from actors.testing import run_seeded
from broker.core.pressure.rate_limit import REJECTED, UNLIMITED, RateLimit, RateState
from broker.edge.rpc.append_pace import BURST_S, AppendPace

BYTES_S = 1000


def slow(bytes_s: int = BYTES_S) -> RateLimit:
    return RateLimit(RateState.SLOWDOWN, bytes_s)


@pytest.mark.parametrize("limit", [UNLIMITED, REJECTED])
def test_nothing_waits_unless_appends_are_slowed(limit: RateLimit) -> None:
    async def scenario() -> None:
        began_s = get_running_loop().time()
        await AppendPace().wait(lambda: limit, 1 << 40)
        assert get_running_loop().time() == began_s

    run_seeded(1, scenario)


def test_streams_together_get_the_rate() -> None:
    async def scenario() -> None:
        pace, began_s = AppendPace(), get_running_loop().time()

        async def stream() -> None:
            for _ in range(10):
                await pace.wait(slow, 100)

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(stream)
        passed_s = get_running_loop().time() - began_s
        # Of 10,000 bytes the burst went at once, and the last one of each stream owes nothing.
        assert passed_s >= 9_900 / BYTES_S - BURST_S - 1e-6
        assert passed_s <= 10_000 / BYTES_S

    run_seeded(2, scenario)


def test_who_waits_goes_on_when_the_limit_ends() -> None:
    async def scenario() -> None:
        pace, now, began_s = AppendPace(), [slow()], get_running_loop().time()
        await pace.wait(lambda: now[0], 3600 * BYTES_S)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pace.wait, lambda: now[0], 1)
            await anyio.sleep(1)
            now[0] = UNLIMITED
        assert get_running_loop().time() - began_s < 60, "not the hour that was owed"

    run_seeded(3, scenario)


def test_a_changed_rate_is_in_force_at_once() -> None:
    async def scenario() -> None:
        pace = AppendPace()
        await pace.wait(slow, 1000)
        began_s = get_running_loop().time()
        await pace.wait(lambda: slow(10 * BYTES_S), 1)
        assert get_running_loop().time() - began_s == pytest.approx(0.075)

    run_seeded(4, scenario)
