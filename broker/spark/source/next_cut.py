"""Chooses where the next micro-batch ends: one tick of all vchannels, within the limits.

It reads no messages: the owners of the vchannels count them. It remembers what it has examined, so
an idle query costs one small call at a time.

Next: broker/spark/source/subscribed.py
"""

import time
from dataclasses import replace
from typing import NamedTuple

from broker.client import Cut
from broker.model.measured import TickChoice
from broker.spark.source.batch_limits import TriggerLimits
from broker.spark.source.bounds import TICK_LOGICAL_BITS
from broker.spark.source.cut_offsets import Position, at_cut
from broker.spark.source.subscribed import Subscribed

IDLE_WAIT_S = 0.1
"""Without this wait an idle query would ask about a hundred times a second."""
IDLE_STEP_S = 0.02
IDLE_CUT_S = 1.0
"""How often an idle query asks for the newest cut although nothing was appended."""
LOOK_AGAIN_S = 5.0
"""How often a query with a pattern looks for new collections."""


class _Found(NamedTuple):
    """Rows from `begin` on, on the vchannels that are last there, up to the tick of `choice`."""

    begin: Position
    choice: TickChoice


class Unread(NamedTuple):
    """What lies between the end of a micro-batch and the newest cut at that time."""

    end: Position
    newest: int
    rows: int
    size: int

    @property
    def milliseconds(self) -> int:
        """The wall time between the two ticks."""
        return (self.newest - int(self.end.tick)) >> TICK_LOGICAL_BITS


class NextCut:
    """The choice for one query in one process."""

    def __init__(self, subscribed: Subscribed) -> None:
        self.newest: Cut | None = None
        """The newest cut at the last look."""
        self.unread: Unread | None = None
        """What the last micro-batch leaves behind; None before the first one."""
        self._subscribed = subscribed
        self._bounded = False
        self._empty: Cut | None = None
        self._asked_s = 0.0
        self._looked_s = 0.0
        self._held_back_s: float | None = None

    def bound(self) -> None:
        """From now on never go beyond what the broker holds at this moment."""
        self.newest = self._subscribed.newest()
        self._bounded = True

    def behind(self, start: Position, limits: TriggerLimits) -> Position | None:
        """Return where a micro-batch from `start` ends; None while there are no rows for one.

        The micro-batch may be empty when other vchannels of the same logs have received so much
        that retention could reach `start`. Without it, nobody could tell later that nothing was
        lost. It is empty, too, when a collection joined whose rows are held back for more: the
        checkpoint must have it before they can be removed.
        """
        self._look_for_collections()
        newest = self._grown(start)
        if newest is None:
            return None
        begin = self._subscribed.joined(start, newest)
        end = self._reached(start, begin, newest, limits)
        new = [name for name in begin.ends if name not in start.ends]
        if not new:
            return end
        began = {name: (begin.of(name), begin.ends[name]) for name in new}
        return replace(end or begin, began=began)

    def _reached(
        self, start: Position, begin: Position, newest: Cut, limits: TriggerLimits
    ) -> Position | None:
        if newest.tick <= begin.tick:
            return None
        found = self._first_rows(begin, newest, limits)
        is_all = found.choice.tick == newest.tick
        if is_all and not found.choice.rows:
            self._empty = newest
            self.unread = Unread(begin.reached(newest), newest.tick, 0, 0)
            moves = begin.ends.keys() != start.ends.keys() or self._is_left_behind(start, newest)
            return begin.reached(newest) if moves else None
        if is_all and self._holds_back(found.choice.rows, limits):
            return None
        self._held_back_s = None
        if is_all:
            return self._ends(begin.reached(newest), newest)
        # Only the broker knows the ids behind a tick other than the newest.
        cut = self._subscribed.gateway.cut(found.begin.last, found.choice.tick)
        return self._ends(found.begin.then(cut), newest)

    def processed_with(self, start: Position) -> Position:
        """Return the last known cut that has no rows before it except those before `start`."""
        empty = self._empty
        if empty is None or empty.tick <= start.tick or empty.ends.keys() != start.ends.keys():
            return start
        return at_cut(empty)

    def _first_rows(self, begin: Position, newest: Cut, limits: TriggerLimits) -> _Found:
        """Return the first rows behind `begin`, up to where the next vchannels are.

        The vchannels that are last are read alone, until they reach the next ones; without a limit
        all are read at once, because Spark may run a single micro-batch for all there is.
        """
        if begin.ahead and not (limits.rows_max or limits.bytes_max):
            return _Found(
                begin, TickChoice(newest.tick, *self._subscribed.unread(begin, newest.tick))
            )
        while True:
            until = min([newest.tick, *begin.ahead.values()])
            choice = self._subscribed.measure(
                begin.last, begin.tick, until, rows_max=limits.rows_max, bytes_max=limits.bytes_max
            ).choice
            if choice.rows or choice.tick < until or until == newest.tick:
                return _Found(begin, choice)
            begin = begin.then(Cut(until, {name: begin.ends[name] for name in begin.last}))

    def _ends(self, end: Position, newest: Cut) -> Position:
        """Note what a micro-batch leaves unread, for the progress report."""
        self.unread = Unread(end, newest.tick, *self._subscribed.unread(end, newest.tick))
        return end

    def _look_for_collections(self) -> None:
        if not self._bounded and time.monotonic() - self._looked_s > LOOK_AGAIN_S:  # noqa: TID251 - Spark calls us synchronously
            self._subscribed.look_again()
            self._looked_s = time.monotonic()  # noqa: TID251

    def _grown(self, start: Position) -> Cut | None:
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

    def _has_grown(self, looked: Position) -> bool:
        if not looked.ends.keys() >= {*self._subscribed.vchannels}:
            return True
        held = self._subscribed.gateway.held(list(looked.ends))
        return any(it.next_id > looked.ends[name] for name, it in held.items())

    def _is_left_behind(self, start: Position, newest: Cut) -> bool:
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
