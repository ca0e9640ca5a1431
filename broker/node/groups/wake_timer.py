"""Wakes an actor at a time, which may become an earlier or a later one."""

from typing import Generic, TypeVar

from actors import Context, Timer

M = TypeVar("M")


class WakeTimer(Generic[M]):
    """For one actor, which gets `message`."""

    def __init__(self, context: Context[M], message: M) -> None:
        self._context = context
        self._message = message
        self._timer: Timer | None = None
        self._at_s = 0.0

    def at(self, at_s: float) -> None:
        """Wake it then, unless it is woken before: it has to ask again each time."""
        now_s = self._context.clock.monotonic_s()
        if now_s < self._at_s <= at_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at_s = at_s
        # A little later: a clock that comes to `at_s` by rounding down would find nothing to do.
        self._timer = self._context.after(max(0.0, at_s - now_s) + 0.001, self._message)
