"""Timers: messages that an actor sends to itself later. They end with their incarnation."""

from typing import Any

from actors.clock import Alarm
from actors.envelope import Envelope
from actors.incarnation import Incarnation


class Timer:
    """One message after a delay, or the same message periodically.

    A periodic timer never has more than one message in the mailbox; it skips periods instead.
    """

    __slots__ = ("_alarm", "_delay_s", "_envelope", "_life", "_message", "_offset_s", "_repeats")

    def __init__(
        self,
        life: Incarnation,
        delay_s: float,
        message: object,
        *,
        repeats: bool,
        offset_s: float | None = None,
    ) -> None:
        """`offset_s`: the timer keeps to the beats of this offset; None: to its own start."""
        self._life = life
        self._delay_s = delay_s
        self._message = message
        self._repeats = repeats
        self._offset_s = offset_s
        self._envelope: Envelope[Any] | None = None
        self._alarm: Alarm | None = None
        # Nobody would cancel a timer that is set after the end.
        if life.exit is None:
            life.timers[self] = None
            self._arm()

    def cancel(self) -> None:
        """No message of this timer is delivered after this call."""
        self._life.timers.pop(self, None)
        if self._alarm is not None:
            self._alarm.cancel()
        if self._envelope is not None:
            self._life.mailbox.withdraw(self._envelope)

    def _arm(self) -> None:
        if self._offset_s is None:
            self._alarm = self._life.clock.call_later(self._delay_s, self._beat)
        else:
            beats = self._life.beats
            self._alarm = beats.call_at_next(self._delay_s, self._offset_s, self._beat)

    def _beat(self) -> None:
        mailbox = self._life.mailbox
        if self._envelope is None or not mailbox.holds(self._envelope):
            self._envelope = Envelope(self._message)
            mailbox.put_tick(self._envelope)
        if self._repeats:
            self._arm()
        else:
            self._life.timers.pop(self, None)
