"""Whether a limit of its own slows a producer: since when, and until when, it is told so."""

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable
from typing import Final

from broker.core.pressure.rate_limit import UNLIMITED, RateLimit, RateState

OWN_LIMIT_S: Final = 5.0
"""A producer is told so long after its last wait that its own limit no longer slows it."""


class OwnLimit:
    """The limit of one producer. `changed` is called when `limit` has changed; `close` it after.

    Why a timer ends it: a producer may send nothing until it is told, and when the limits were
    removed nobody asks how long its appends have to wait.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.limit = UNLIMITED
        self._changed = changed
        self._until_s = 0.0
        self._timer: TimerHandle | None = None

    def slowed(self, bytes_s: int, wait_s: float = 0.0) -> None:
        """An append waits `wait_s`, or is refused, because of a limit of `bytes_s`."""
        loop = get_running_loop()
        self._until_s = max(self._until_s, loop.time() + wait_s + OWN_LIMIT_S)
        if self._timer is None:
            self._timer = loop.call_at(self._until_s, self._look)
        self.limit = RateLimit(RateState.SLOWDOWN, bytes_s)
        self._changed()

    def close(self) -> None:
        """Call `changed` no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        loop = get_running_loop()
        if loop.time() < self._until_s:
            self._timer = loop.call_at(self._until_s, self._look)
        else:
            self._timer, self.limit = None, UNLIMITED
            self._changed()
