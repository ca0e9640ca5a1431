"""The seeded loop. Its first test fails when CPython's loop changes."""

import asyncio
import inspect
from asyncio.base_events import BaseEventLoop

import pytest

from actors.seeded_loop import Deadlock, SeededLoop
from actors.testing import run_seeded


def test_the_private_parts_of_cpython_that_the_loop_replaces_are_where_they_were() -> None:
    once = inspect.getsource(BaseEventLoop._run_once)  # type: ignore[attr-defined]
    for part in (
        "self._ready.popleft()",
        "self._selector.select(timeout)",
        "self._scheduled",
        "self._clock_resolution",
    ):
        assert part in once, f"CPython changed: {part} is no longer in _run_once"
    assert "self._process_events(event_list)" in once
    loop = SeededLoop(0, 1.0)
    for name in ("_ready", "_scheduled", "_write_to_self", "_process_events"):
        assert hasattr(loop, name), f"CPython changed: {name} is gone"
    loop.call_soon_threadsafe(loop.stop)
    loop.run_forever()
    loop.close()


def order(seed: int) -> list[int]:
    async def main() -> list[int]:
        seen: list[int] = []
        for number in range(8):
            asyncio.get_running_loop().call_soon(seen.append, number)
        await asyncio.sleep(1)
        return seen

    return run_seeded(seed, main)


def test_a_seed_decides_the_order_of_what_is_ready() -> None:
    orders = {tuple(order(seed)) for seed in range(20)}
    assert len(orders) == 20
    assert all(sorted(seen) == list(range(8)) for seen in orders)


def test_the_same_seed_gives_the_same_order() -> None:
    assert order(7) == order(7)


def test_waiting_for_each_other_is_an_error_and_names_who_waits() -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("the lonely one")
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="the lonely one"):
        run_seeded(0, main)


def test_a_run_that_never_ends_is_an_error() -> None:
    async def main() -> None:
        for _ in range(10**9):
            await asyncio.sleep(10)

    with pytest.raises(Deadlock, match="100"):
        run_seeded(0, main, virtual_limit_s=100)
