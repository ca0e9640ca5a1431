"""Alarms that share one wake-up of the process: all that are due at one beat ring in one turn.

Why: an event loop that wakes for each of a hundred periodic timers spends more on waking than on
what they do. A beat is a multiple of a period, plus an offset, on the clock.
"""

from collections.abc import Callable

from actors.clock import Alarm, Clock

EARLY_SHARE = 0.1
"""Event loops round times, so an alarm may ring a little before its beat. This close to a beat, in
periods, the next one is meant, so that none rings twice."""


class Beats:
    """The shared alarms of one System. Those of one beat ring in the order they were set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[int, _Beat] = {}

    def call_at_next(
        self, period_s: float, offset_s: float, callback: Callable[[], object]
    ) -> Alarm:
        """Call `callback` once, at the next beat; beats are whole milliseconds."""
        now_ms = self._clock.monotonic_s() * 1000
        period_ms, offset_ms = max(1, round(period_s * 1000)), round(offset_s * 1000)
        passed = int((now_ms - offset_ms) // period_ms)
        due_ms = (passed + 1) * period_ms + offset_ms
        if due_ms - now_ms < period_ms * EARLY_SHARE:
            due_ms += period_ms
        beat = self._due.get(due_ms)
        if beat is None:
            beat = self._due[due_ms] = _Beat()
            delay_s = (due_ms - now_ms) / 1000
            beat.alarm = self._clock.call_later(delay_s, lambda: self._ring(due_ms))
        call = _Call(self, due_ms, callback)
        beat.calls[call] = None
        return call

    def forget(self, call: "_Call") -> None:
        """Remove a call. An alarm without calls is cancelled."""
        beat = self._due.get(call.due_ms)
        if beat is None or call not in beat.calls:
            return
        del beat.calls[call]
        if not beat.calls and beat.alarm is not None:
            beat.alarm.cancel()
            del self._due[call.due_ms]

    def _ring(self, due_ms: int) -> None:
        for call in self._due.pop(due_ms).calls:
            # A call of this beat may have cancelled it.
            if not call.cancelled:
                call.callback()


class _Beat:
    """The calls of one moment, and the alarm that rings for all of them."""

    __slots__ = ("alarm", "calls")

    def __init__(self) -> None:
        self.alarm: Alarm | None = None
        # A dict as an ordered set: seeded tests must repeat.
        self.calls: dict[_Call, None] = {}


class _Call:
    """See Alarm."""

    __slots__ = ("_beats", "callback", "cancelled", "due_ms")

    def __init__(self, beats: Beats, due_ms: int, callback: Callable[[], object]) -> None:
        self._beats = beats
        self.due_ms = due_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        self._beats.forget(self)
