"""The public test tool."""

import asyncio

import pytest

from actors.testing import EPOCH_MS, VirtualClock, run_seeded


def test_a_year_passes_in_no_time() -> None:
    async def main() -> tuple[float, int]:
        clock = VirtualClock()
        await clock.sleep(31_536_000)
        return clock.monotonic_s(), clock.wall_ms()

    assert run_seeded(0, main, virtual_limit_s=1e9) == (31_536_000, EPOCH_MS + 31_536_000_000)


def test_the_wall_clock_can_be_set_wrong() -> None:
    async def main() -> int:
        clock = VirtualClock()
        clock.shift_wall(-5000)
        return clock.wall_ms()

    assert run_seeded(0, main) == EPOCH_MS - 5000


def test_an_alarm_rings_in_virtual_time() -> None:
    async def main() -> list[float]:
        clock = VirtualClock()
        rung: list[float] = []
        clock.call_later(5.0, lambda: rung.append(clock.monotonic_s()))
        await clock.sleep(6.0)
        return rung

    assert run_seeded(0, main) == [5.0]


def test_an_error_that_the_loop_would_only_log_is_raised() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        run_seeded(0, main)


def test_a_complaint_without_an_error_is_raised_too() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_exception_handler({"message": "odd"})

    with pytest.raises(RuntimeError, match="odd"):
        run_seeded(0, main)


def test_what_the_main_coroutine_raises_comes_out() -> None:
    async def main() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_seeded(0, main)
