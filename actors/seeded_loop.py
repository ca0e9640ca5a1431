"""An asyncio event loop made repeatable by a seed: chosen order, virtual time, no I/O or threads.

It replaces the private `_ready` queue and the selector of CPython's BaseEventLoop (3.11 to 3.13).
tests/actors/test_seeded_loop.py fails loudly if CPython changes them.
"""

import asyncio
from asyncio.base_events import BaseEventLoop
from collections import deque
from random import Random
from typing import Any

RESOLUTION_S = 1e-6
"""Timers this close fire together; more than float rounding after years of virtual time."""


class Deadlock(Exception):
    """No callback can ever run again, or virtual time has passed its limit."""


class SeededReady(deque[Any]):
    """The callbacks that are ready to run; taken in an order chosen by the seed."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random

    def popleft(self) -> Any:
        """Remove and return a random one."""
        distance = self._random.randrange(len(self))
        self.rotate(-distance)
        chosen = super().popleft()
        self.rotate(distance)
        return chosen


class SeededLoop(BaseEventLoop):
    """Time starts at 0 and jumps to the next timer when nothing else can run."""

    def __init__(self, seed: int, virtual_limit_s: float) -> None:
        super().__init__()
        self.errors: list[BaseException] = []
        self._now_s = 0.0
        self._limit_s = virtual_limit_s
        self._ready = SeededReady(Random(seed))
        # BaseEventLoop's `_run_once` asks the selector how long to sleep: `select` below.
        self._selector = self
        self._clock_resolution = RESOLUTION_S
        self.set_exception_handler(lambda _, context: self._note(context))

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def select(self, timeout: float | None) -> list[Any]:
        """Stand in for the selector: advance virtual time instead of waiting for I/O."""
        # `_run_once` passes None when no callback is ready and no timer is set.
        if timeout is None:
            raise Deadlock(f"all tasks wait for each other at {self._now_s} s: {self._waiting()}")
        self._now_s += timeout
        if self._now_s > self._limit_s:
            raise Deadlock(f"still not done after {self._limit_s} virtual s: {self._waiting()}")
        return []

    def _waiting(self) -> str:
        return ", ".join(sorted(task.get_name() for task in asyncio.all_tasks(self)))

    def _note(self, context: dict[str, Any]) -> None:
        self.errors.append(context.get("exception") or RuntimeError(context["message"]))

    def _process_events(self, event_list: list[Any]) -> None:
        """No I/O."""

    def _write_to_self(self) -> None:
        """No-op: the loop never sleeps."""
