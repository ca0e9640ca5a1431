"""Which of the batches that one reader gave out are processed, and the position that follows.

Batches of a channel are numbered as they are given out. They may be committed in any order; the
channel's position is the end of the last batch before the first one that is not committed. So a
batch that is never committed is read again, whatever is committed after it.

Of a batch that is not committed nothing is kept but its number: the batch itself knows where it
ends. What is kept are the runs of committed batches behind the first gap, at most RUNS_MAX.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

from broker.model.named_cursor import ChannelPosition

RUNS_MAX: Final = 65_536
"""Of committed batches behind a gap, for each channel."""

Place = tuple[str, int]
"""A channel, and the number of a batch on it."""


class TooManyGaps(Exception):
    """One more commit out of order would exceed RUNS_MAX; `place` is the batch to commit first."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.place = place


class CommitTracker:
    """The batches of one reader, by channel."""

    def __init__(self, starts: Mapping[str, ChannelPosition]) -> None:
        self._channels = {name: _Channel(at) for name, at in starts.items()}

    def give(self, channels: Sequence[str]) -> tuple[Place, ...]:
        """Number a batch that the program gets now; one that concerns several channels on each."""
        places = []
        for name in channels:
            channel = self._channels[name]
            channel.given += 1
            places.append((name, channel.given))
        return tuple(places)

    def take(self, places: Sequence[Place], end: ChannelPosition) -> None:
        """The program has all of a batch; `commit_taken` needs all before it to be taken, too."""
        for name, number in places:
            channel = self._channels[name]
            if number == channel.taken + 1:
                channel.taken, channel.taken_end, channel.part = number, end, None

    def take_part(self, places: Sequence[Place], until: ChannelPosition) -> None:
        """The program has a batch up to this message."""
        for name, number in places:
            channel = self._channels[name]
            if number == channel.taken + 1:
                channel.part = until

    def commit(self, places: Sequence[Place], end: ChannelPosition) -> None:
        """A batch is processed; again is allowed. Raises TooManyGaps, with nothing changed."""
        for name, number in places:
            if not self._channels[name].has_room(number):
                raise TooManyGaps((name, self._channels[name].done + 1))
        for name, number in places:
            self._channels[name].commit(number, end)

    def commit_taken(self) -> None:
        """Everything that the program has taken is processed."""
        for channel in self._channels.values():
            channel.commit_taken()

    def position(self, name: str, closed: ChannelPosition) -> ChannelPosition:
        """How far the channel is processed.

        `closed`: no message up to it is still to be given out. It counts when every batch is
        processed, so that a channel without messages moves too.
        """
        channel = self._channels[name]
        return channel.end.joined(closed) if channel.done == channel.given else channel.end


class _Channel:
    """Batches 1 to `done` are processed, up to `given` were given out."""

    __slots__ = ("_ends", "_firsts", "_lasts", "done", "end", "given", "part", "taken", "taken_end")

    def __init__(self, start: ChannelPosition) -> None:
        self.given = self.taken = self.done = 0
        self.end = self.taken_end = start
        self.part: ChannelPosition | None = None
        """Inside of batch `taken + 1`."""
        # Runs of committed batches behind `done`: the first and the last number, and the end.
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._ends: list[ChannelPosition] = []

    def has_room(self, number: int) -> bool:
        if len(self._firsts) < RUNS_MAX or number <= self.done + 1:
            return True
        at = bisect_right(self._firsts, number)
        joins_before = self._lasts[at - 1] >= number - 1 if at else False
        return joins_before or (at < len(self._firsts) and self._firsts[at] == number + 1)

    def commit(self, number: int, end: ChannelPosition) -> None:
        if number <= self.done:
            return
        at = bisect_right(self._firsts, number)
        if at and self._lasts[at - 1] >= number:
            return
        self._firsts.insert(at, number)
        self._lasts.insert(at, number)
        self._ends.insert(at, end)
        self._join(at)
        self._join(at - 1)
        if self._firsts[0] == self.done + 1:
            self.done, self.end = self._lasts.pop(0), self._ends.pop(0)
            del self._firsts[0]

    def commit_taken(self) -> None:
        if self.taken > self.done:
            behind = bisect_right(self._lasts, self.taken)
            for each in (self._firsts, self._lasts, self._ends):
                del each[:behind]
            self.done, self.end = self.taken, self.taken_end
            if self._firsts and self._firsts[0] <= self.done + 1:
                self.done, self.end = self._lasts.pop(0), self._ends.pop(0)
                del self._firsts[0]
        if self.part is not None and self.done == self.taken:
            self.end = self.end.joined(self.part)

    def _join(self, at: int) -> None:
        """Join a run with the next one if no batch is between them."""
        if 0 <= at < len(self._firsts) - 1 and self._lasts[at] + 1 == self._firsts[at + 1]:
            del self._firsts[at + 1], self._lasts[at], self._ends[at]
