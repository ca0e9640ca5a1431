"""Ends what a program has dropped without closing it.

The garbage collector finalises objects on whichever thread it runs, and amid any call of that
thread. Tasks and cancel scopes can only be touched from their own event loop, between its steps.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress


class Drop:
    """Calls `end` soon on the event loop that made this; `now` may be called on any thread."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    def now(self) -> None:
        """Never fails. Nothing in a forked child, whose parent still has the object."""
        if os.getpid() == self._pid:
            with suppress(RuntimeError):  # the loop is closed, and its tasks have ended
                self._loop.call_soon_threadsafe(self._end)
