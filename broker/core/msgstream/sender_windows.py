"""Windows by the clock of the senders: time tick messages in the channels end them.

The algorithm of early Milvus's time tick streams. Each channel carries messages with timestamps of
their senders, and time ticks: a tick T promises that every message up to T was sent before it. A
window ends at a tick that every channel has had; a channel that is there waits for the others, so
ticks that one channel misses only join two windows.

Two things differ. Where ticks never meet, `take_unmet` ends a window at the minimum of the newest
ticks, which every channel has promised too. And what its sender sent too late, behind a tick that
covers it, comes in the next window and is counted.

`place`: the position of a message in its channel. Places of one channel are compared, and grow.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")

BYTES_MAX: Final = 64 << 20
"""Of messages that wait for the end of their window, over all channels."""


@dataclass(frozen=True, slots=True)
class Sent(Generic[T]):
    """A message with its timestamps, `end_ts` being the largest; 0: it has none."""

    end_ts: int
    place: bytes
    nbytes: int
    body: T


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a channel continues: read from `place` on, which may be a message or a time tick.

    Messages up to `through` with timestamps up to `tick` were in a window already.
    """

    place: bytes = b""
    through: bytes = b""
    tick: int = 0


@dataclass(frozen=True, slots=True)
class SenderWindow(Generic[T]):
    """The messages up to `end` that were in no window before, channel by channel as they came.

    `late` counts those with timestamps up to `begin`. `ends`: where each channel continues.
    """

    begin: int
    end: int
    messages: Sequence[T]
    late: int
    ends: Mapping[str, Resume]


@dataclass(slots=True)
class _Channel(Generic[T]):
    resumed: Resume
    tick: int
    tick_place: bytes
    through: bytes
    waiting: list[Sent[T]] = field(default_factory=list)

    def resume(self, end: int) -> Resume:
        """After the window that ends there was taken."""
        first = self.waiting[0].place if self.waiting else self.tick_place
        if self.tick > end:
            # Its newest tick counts again after a restart, so it must be read again.
            first = min(first, self.tick_place)
        return Resume(first, self.through, end)


class SenderWindows(Generic[T]):
    """Gathers the messages and ticks of some channels, and cuts them into windows."""

    def __init__(
        self,
        channels: Iterable[str],
        resumed: Mapping[str, Resume] | None = None,
        *,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        starts = dict.fromkeys(channels, Resume()) | dict(resumed or {})
        self._channels: dict[str, _Channel[T]] = {
            name: _Channel(it, it.tick, it.place, it.through) for name, it in starts.items()
        }
        self._end = min(it.tick for it in self._channels.values())
        self._bytes = 0
        self._bytes_max = bytes_max
        self.late = 0
        """Messages that came behind a tick that covered them, since the start."""
        self.ticks_back = 0
        """Time ticks that were below an earlier one of their channel, and were ignored."""

    @property
    def end(self) -> int:
        """The end of the newest window."""
        return self._end

    @property
    def ready(self) -> bool:
        """Whether every channel has had one tick above the end of the newest window."""
        ticks = {it.tick for it in self._channels.values()}
        return len(ticks) == 1 and max(ticks) > self._end

    @property
    def behind(self) -> list[str]:
        """The channels whose next tick the window waits for."""
        newest = max(it.tick for it in self._channels.values())
        if newest <= self._end:
            return list(self._channels)
        return [name for name, it in self._channels.items() if it.tick < newest]

    @property
    def full(self) -> bool:
        """Whether as much waits for the end of the window as may."""
        return self._bytes >= self._bytes_max

    @property
    def unmet(self) -> bool:
        """Whether `take_unmet` has a window: every channel has had some newer tick."""
        return min(it.tick for it in self._channels.values()) > self._end

    def wants(self, channel: str) -> bool:
        """Whether to read more of this channel: it has not had the newest tick yet."""
        return not self.full and channel in self.behind

    def add(self, channel: str, sent: Sent[T]) -> None:
        """The next message of a channel."""
        state = self._channels[channel]
        if sent.place <= state.resumed.through and sent.end_ts <= state.resumed.tick:
            return  # it was in a window before the restart
        state.through = max(state.through, sent.place)
        state.waiting.append(sent)
        self._bytes += sent.nbytes

    def tick(self, channel: str, tick: int, place: bytes) -> bool:
        """The next time tick of a channel; False for one that goes back, which is ignored."""
        state = self._channels[channel]
        state.through = max(state.through, place)
        if tick < state.tick:
            # Read again after a restart, it is not news.
            back = place > state.resumed.through
            self.ticks_back += back
            return not back
        state.tick, state.tick_place = tick, place
        return True

    def take(self) -> SenderWindow[T]:
        """The next window; it may be empty. Only when one is `ready`."""
        assert self.ready, "no window is ready"
        return self._take()

    def take_unmet(self) -> SenderWindow[T]:
        """A window up to the smallest of the channels' newest ticks. Only when there is one."""
        assert self.unmet, "some channel has had no newer tick"
        return self._take()

    def _take(self) -> SenderWindow[T]:
        begin, end = self._end, min(it.tick for it in self._channels.values())
        messages: list[T] = []
        late = 0
        for state in self._channels.values():
            kept: list[Sent[T]] = []
            for sent in state.waiting:
                if sent.end_ts > end:
                    kept.append(sent)
                    continue
                messages.append(sent.body)
                late += 0 < sent.end_ts <= begin
                self._bytes -= sent.nbytes
            state.waiting = kept
        self._end = end
        self.late += late
        ends = {name: it.resume(end) for name, it in self._channels.items()}
        return SenderWindow(begin, end, messages, late, ends)
