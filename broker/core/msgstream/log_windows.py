"""Windows by the clock of the log: each ends at a tick that is closed on every source.

A source (a pchannel, or an embedded queue) delivers runs of messages in the order of their ticks,
and says up to which tick nothing more will come. The window ends at the minimum over all sources,
so nobody has to send ticks, and no message can come late. Reading only the source that is `lowest`
keeps little: of each other source what it delivered last.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run(Generic[T]):
    """Messages of one source in the order of their ticks; message i has `ticks[i]`."""

    ticks: Sequence[int]
    nbytes: int
    body: T


@dataclass(frozen=True, slots=True)
class WindowPart(Generic[T]):
    """Messages [first, stop) of a run."""

    body: T
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class LogWindow(Generic[T]):
    """Every message with a tick in (begin, end]; those of one source in the order of ticks."""

    begin: int
    end: int
    parts: Sequence[WindowPart[T]]


class BrokenPromise(Exception):
    """A source delivered a message at or below a tick that it had closed."""

    def __init__(self, source: str, tick: int, closed: int) -> None:
        super().__init__(
            f"{source} delivered a message with tick {tick} after it had closed tick {closed};"
            " its windows cannot be trusted: read it again from a position before"
        )


class LogWindows(Generic[T]):
    """Gathers the runs of some sources, and cuts them into windows. `after`: begin of the first."""

    def __init__(self, sources: Iterable[str], after: int = 0) -> None:
        self._runs: dict[str, deque[tuple[Run[T], int]]] = {it: deque() for it in sources}
        """With the first message of each run that was in no window yet."""
        self._closed = dict.fromkeys(self._runs, after)
        self._end = after
        self._bytes = 0

    @property
    def end(self) -> int:
        """The end of the newest window; all up to it was taken."""
        return self._end

    @property
    def held_bytes(self) -> int:
        """The size of what is in no window yet."""
        return self._bytes

    @property
    def ready(self) -> bool:
        """Whether `take` has a window."""
        return min(self._closed.values()) > self._end

    @property
    def lowest(self) -> str:
        """The source that the end of the next window depends on: the one to read."""
        return min(self._closed, key=self._closed.__getitem__)

    def add(self, source: str, run: Run[T], closed: int) -> None:
        """The next run of a source, which closes a tick. BrokenPromise for one that comes late."""
        if len(run.ticks):
            if run.ticks[0] <= self._closed[source]:
                raise BrokenPromise(source, run.ticks[0], self._closed[source])
            self._runs[source].append((run, 0))
            self._bytes += run.nbytes
        self.close(source, closed)

    def close(self, source: str, tick: int) -> None:
        """No message with a tick up to this one is still to come from this source."""
        self._closed[source] = max(self._closed[source], tick)

    def take(self) -> LogWindow[T]:
        """The next window; it may be empty. Only when one is `ready`."""
        begin, self._end = self._end, min(self._closed.values())
        assert self._end > begin, "no window is ready"
        parts = [part for runs in self._runs.values() for part in self._taken(runs)]
        return LogWindow(begin, self._end, parts)

    def _taken(self, runs: deque[tuple[Run[T], int]]) -> Iterable[WindowPart[T]]:
        while runs:
            run, first = runs[0]
            stop = bisect_right(run.ticks, self._end)
            if stop > first:
                yield WindowPart(run.body, first, stop)
            if stop < len(run.ticks):
                runs[0] = run, stop
                return
            runs.popleft()
            self._bytes -= run.nbytes
