"""Wakes a task at exact times of `perf_counter`, by a timer of Linux.

Why not `asyncio.sleep`: uvloop rounds to whole milliseconds, so that a step of one millisecond
would come up to half of it too early or too late.
"""

import asyncio
import ctypes
import os
import time
from types import TracebackType
from typing import Self

MONOTONIC = 1
"""The clock of `perf_counter`."""
ABSOLUTE = 1
NS = 1_000_000_000


class _Spec(ctypes.Structure):
    """`struct itimerspec`: the interval, then the first beat."""

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")]


class Beats:
    """Beats every `every_s` seconds. The first beat is on entering, at `started_s`."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._news = asyncio.Event()
        self._descriptor = -1
        self.started_s = 0.0

    async def until(self, when_s: float) -> None:
        """Wait for the first beat at or after that time; returns at once when it has passed."""
        while time.perf_counter() < when_s:
            self._news.clear()
            await self._news.wait()

    def __enter__(self) -> Self:
        """Raises OSError on a system without such a timer."""
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self._descriptor = self._checked(self._libc.timerfd_create(MONOTONIC, flags))
        self.started_s = time.perf_counter()
        every, first = round(self._every_s * NS), round(self.started_s * NS)
        spec = _Spec(*divmod(every, NS), *divmod(first, NS))
        set_time = self._libc.timerfd_settime
        self._checked(set_time(self._descriptor, ABSOLUTE, ctypes.byref(spec), None))
        asyncio.get_running_loop().add_reader(self._descriptor, self._beat)
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _beat(self) -> None:
        os.read(self._descriptor, 8)
        self._news.set()

    def _checked(self, result: int) -> int:
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result
