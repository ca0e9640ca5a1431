"""Chooses where the next micro-batch ends: one tick of all vchannels, within the limits.

It reads no messages: the owners of the vchannels count them. It remembers what it has examined, so
an idle query costs one small call at a time.

Next: broker/spark/source/subscribed.py
"""

import time

from broker.client import Cut
from broker.spark.source.batch_limits import TriggerLimits
from broker.spark.source.subscribed import Subscribed

IDLE_WAIT_S = 0.1
"""Without this wait an idle query would ask about a hundred times a second."""
IDLE_STEP_S = 0.02
IDLE_CUT_S = 1.0
"""How often an idle query asks for the newest cut although nothing was appended."""


class NextCut:
    """The choice for one query in one process."""

    def __init__(self, subscribed: Subscribed) -> None:
        self.newest: Cut | None = None
        """The newest cut at the last look."""
        self._subscribed = subscribed
        self._bounded = False
        self._empty: Cut | None = None
        self._asked_s = 0.0
        self._held_back_s: float | None = None

    def bound(self) -> None:
        """From now on never go beyond what the broker holds at this moment."""
        self.newest = self._subscribed.newest()
        self._bounded = True

    def behind(self, start: Cut, limits: TriggerLimits) -> Cut | None:
        """Return where a micro-batch from `start` ends; None while there are no rows for one.

        The micro-batch may be empty when other vchannels of the same logs have received so much
        that retention could reach `start`. Without it, nobody could tell later that nothing was
        lost.
        """
        newest = self._grown(start)
        if newest is None or newest.tick <= start.tick:
            return None
        choice = self._subscribed.measure(
            start, newest.tick, rows_max=limits.rows_max, bytes_max=limits.bytes_max
        ).choice
        is_all = choice.tick == newest.tick
        if is_all and not choice.rows:
            self._empty = newest
            return newest if self._is_left_behind(start, newest) else None
        if is_all and self._holds_back(choice.rows, limits):
            return None
        self._held_back_s = None
        # Only the broker knows the ids behind a tick other than the newest.
        return newest if is_all else self._subscribed.gateway.cut(list(start.ends), choice.tick)

    def processed_with(self, start: Cut) -> Cut:
        """Return the last known cut that has no rows before it except those before `start`."""
        empty = self._empty
        return empty if empty is not None and empty.tick > start.tick else start

    def _grown(self, start: Cut) -> Cut | None:
        """Return the newest cut when something may lie behind `start`; wait a little for it."""
        if self._bounded:
            return self.newest
        looked = self.processed_with(start)
        waited_s = 0.0
        while not (self._has_grown(looked) or self._is_long_ago()):
            if waited_s >= IDLE_WAIT_S:
                return None
            time.sleep(IDLE_STEP_S)  # noqa: TID251 - Spark calls us synchronously
            waited_s += IDLE_STEP_S
        self._asked_s = time.monotonic()  # noqa: TID251
        self.newest = self._subscribed.newest()
        return self.newest

    def _has_grown(self, looked: Cut) -> bool:
        held = self._subscribed.gateway.held(list(looked.ends))
        return any(it.next_id > looked.ends[name] for name, it in held.items())

    def _is_left_behind(self, start: Cut, newest: Cut) -> bool:
        """Return whether a log holds less before `start` than behind it.

        This is rarely true, however fast the log grows.
        """
        held = self._subscribed.gateway.held(list(start.ends))
        return any(
            end - held[name].first_id < newest.ends[name] - end for name, end in start.ends.items()
        )

    def _is_long_ago(self) -> bool:
        return time.monotonic() - self._asked_s > IDLE_CUT_S  # noqa: TID251

    def _holds_back(self, rows: int, limits: TriggerLimits) -> bool:
        """Return whether there are too few rows and still time to wait for more."""
        if self._bounded or rows >= limits.rows_min:
            return False
        now_s = time.monotonic()  # noqa: TID251
        self._held_back_s = self._held_back_s or now_s
        return now_s - self._held_back_s < self._subscribed.options.trigger_delay_s
