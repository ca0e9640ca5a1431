"""Calls that other threads hand over to an event loop.

Why not `call_soon_threadsafe`: it wakes the loop's thread while it still holds the interpreter's
lock, so that thread runs into the lock and sleeps again, two switches more for each group of
appends. A write to a pipe releases the lock first.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextvars import Context
from weakref import WeakKeyDictionary

_READ_BYTES = 4096


class LoopCalls:
    """The calls of one event loop. Get it from `of`; keep it for as long as `put` may be called."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._calls: deque[Callable[[], object]] = deque()
        # First: `__del__` runs even when the pipe cannot be made.
        self._ends: tuple[int, ...] = ()
        self._ends = self._read_end, self._write_end = os.pipe()
        for end in self._ends:
            os.set_blocking(end, False)
        # In an empty context: the calls are of everybody, not of the task that came first.
        Context().run(loop.add_reader, self._read_end, self._run)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> "LoopCalls":
        """The one of this loop, which must be the running one."""
        calls = _of_loops.get(loop)
        if calls is None:
            calls = _of_loops[loop] = cls(loop)
        return calls

    def put(self, call: Callable[[], object]) -> None:
        """Have the loop call it, in the order of `put`; never waits. For any thread.

        Nothing is called once the loop is closed.
        """
        self._calls.append(call)
        self._wake()

    def _run(self) -> None:
        # Read first: what is put after that wakes the loop again.
        try:
            os.read(self._read_end, _READ_BYTES)
        except BlockingIOError:
            pass  # woken for nothing
        calls = self._calls
        try:
            while calls:
                calls.popleft()()
        finally:
            # A call has failed, which the loop reports. The others must not wait for the next one.
            if calls:
                self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._write_end, b"\0")
        except BlockingIOError:
            pass  # full of wake-ups that the loop has not read

    def __del__(self) -> None:
        # Not with the loop: a thread that still holds this object would write to whatever file gets
        # the number of the pipe.
        for end in self._ends:
            os.close(end)


_of_loops: "WeakKeyDictionary[asyncio.AbstractEventLoop, LoopCalls]" = WeakKeyDictionary()
