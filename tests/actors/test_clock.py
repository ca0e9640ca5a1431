"""The real clock, as far as it can be told from a stopped one without waiting."""

import asyncio

import pytest

from actors import SystemClock
from actors.clock import deadline
from actors.testing import VirtualClock
from tests.actors.troupe import seeded


async def test_the_machine_clock_moves_on() -> None:
    clock = SystemClock()
    before_s, wall_ms = clock.monotonic_s(), clock.wall_ms()
    await clock.sleep(0.001)
    assert clock.monotonic_s() > before_s
    assert clock.wall_ms() >= wall_ms > 1_600_000_000_000


async def test_an_alarm_of_the_machine_clock_rings_unless_cancelled() -> None:
    rung: list[str] = []
    over = asyncio.Event()
    clock = SystemClock()
    clock.call_later(0.0, lambda: rung.append("cancelled")).cancel()
    clock.call_later(0.001, over.set)
    await over.wait()
    assert rung == []


@seeded
async def test_a_deadline_ends_what_takes_too_long_by_its_own_clock() -> None:
    clock = VirtualClock()
    with deadline(clock, 3.0) as scope:
        await clock.sleep(100)
    assert scope.cancelled_caught
    assert clock.monotonic_s() == pytest.approx(3.0)


@seeded
async def test_a_deadline_leaves_alone_what_is_in_time() -> None:
    clock = VirtualClock()
    with deadline(clock, 3.0) as scope:
        await clock.sleep(2)
    with deadline(clock, None) as unlimited:
        await clock.sleep(1000)
    assert not scope.cancelled_caught
    assert not unlimited.cancelled_caught
