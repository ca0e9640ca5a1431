"""Streams in the memory of one process: for tests, and for parts that live together.

Every message gets a tick of one counter, so ticks of all channels are comparable, and everything up
to the counter is closed. Nothing is durable.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import anyio
import anyio.lowlevel

from broker.client.errors import BadTarget, DeadlineExceeded, OutOfRange
from broker.model.cut import Cut
from broker.model.ids import MessageId, TimeTick
from broker.msgstream.backends.stream_backend import Feed, FeedStart, FeedStep, RowShaper
from broker.msgstream.stream_errors import BadPosition, ChannelDestroyed

MESSAGES_MAX: Final = 65_536
LOT_MESSAGES: Final = 1024
_MESSAGE_BYTES: Final = 64
"""Counted for an object, whose size nobody knows."""


class MemoryQueue:
    """The messages of one channel that some reader has not had yet, and later ones."""

    def __init__(self) -> None:
        self.messages: deque[tuple[int, object]] = deque()
        self.removed_tick = 0
        self.feeds: set[MemoryFeed] = set()

    def behind(self, tick: int) -> list[tuple[int, object]]:
        """The next messages behind a tick."""
        first = next((at for at, it in enumerate(self.messages) if it[0] > tick), None)
        if first is None:
            return []
        return list(islice(self.messages, first, first + LOT_MESSAGES))

    def trim(self) -> None:
        """Forget what every open reader has had; with no reader, nothing."""
        done = min((it.tick for it in self.feeds), default=0)
        while self.messages and self.messages[0][0] <= done:
            self.removed_tick = self.messages.popleft()[0]


class MemoryBackend:
    """See StreamBackend. Channels are made by the first use of their name.

    A channel keeps `messages_max` messages: when it is full, those that every open reader has had
    are forgotten, and a sender waits for the slowest reader, until its deadline.
    """

    def __init__(self, *, messages_max: int = MESSAGES_MAX) -> None:
        self._queues: dict[str, MemoryQueue] = {}
        self._destroyed: set[str] = set()
        self._messages_max = messages_max
        self.tick = 0
        self._moved = anyio.Event()

    async def resolve(self, names: Sequence[str]) -> list[str]:
        """See StreamBackend."""
        for name in names:
            if not name:
                raise BadTarget("a channel needs a name")
            self._destroyed.discard(name)
            self._queues.setdefault(name, MemoryQueue())
        return list(names)

    def destroy(self, name: str) -> None:
        """Forget the channel; its readers end with ChannelDestroyed. BadTarget: there is none."""
        if self._queues.pop(name, None) is None:
            raise BadTarget(f"there is no channel {name!r} in memory")
        self._destroyed.add(name)
        self.notify()

    async def send(self, channel: str, payloads: Sequence[object], deadline_s: float) -> None:
        """See StreamBackend. The messages that fit before the deadline stay sent."""
        await self._room([channel], len(payloads), deadline_s)
        self._append(channel, payloads)

    async def send_to_all(
        self, channels: Sequence[str], payloads: Sequence[object], deadline_s: float
    ) -> None:
        """See StreamBackend."""
        await self._room(channels, len(payloads), deadline_s)
        for channel in channels:
            self._append(channel, payloads)

    def feeds(self, starts: Mapping[str, FeedStart], *, apart: bool) -> list[Feed]:
        """See StreamBackend; there is one for each channel in any case."""
        return [MemoryFeed(self, name, start) for name, start in starts.items()]

    def tick_of(self, place: bytes) -> int:
        """See StreamBackend."""
        if len(place) != 8:
            raise BadPosition(f"{place!r} is no place in the memory of a process")
        return int.from_bytes(place, "big")

    def end_of_tick(self, tick: int) -> bytes:
        """See StreamBackend."""
        return tick.to_bytes(8, "big")

    async def cut(self, channels: Iterable[str], tick: int) -> Cut:
        """See StreamBackend: ids are ticks."""
        return Cut(TimeTick(tick), dict.fromkeys(channels, MessageId(tick + 1)))

    async def row_shaper(self, channels: Sequence[str]) -> RowShaper:
        """Refused with BadTarget."""
        raise BadTarget("channels in memory carry objects and no Arrow rows: take the msgs")

    def queue(self, channel: str) -> MemoryQueue:
        """The channel. ChannelDestroyed when it is gone."""
        found = self._queues.get(channel)
        if found is None:
            raise ChannelDestroyed(channel)
        return found

    def notify(self) -> None:
        """Wake all that wait for messages, or for room."""
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    async def moved(self) -> None:
        """Wait until something was sent, read or destroyed."""
        await self._moved.wait()

    async def _room(self, channels: Sequence[str], more: int, deadline_s: float) -> None:
        """Wait until all of these channels have room. DeadlineExceeded, ChannelDestroyed."""
        if more > self._messages_max:
            raise BadTarget(f"{more} messages at once, a channel holds {self._messages_max}")
        with anyio.move_on_after(deadline_s):
            while True:
                full = [it for it in channels if not self._has_room(it, more)]
                if not full:
                    return
                await self.moved()
        raise DeadlineExceeded(
            f"{full[0]} holds {self._messages_max} messages, and its slowest reader took none"
            f" within {deadline_s:g} s; close readers that do not read"
        )

    def _has_room(self, channel: str, more: int) -> bool:
        queue = self.queue(channel)
        if len(queue.messages) + more > self._messages_max:
            queue.trim()
        return len(queue.messages) + more <= self._messages_max

    def _append(self, channel: str, payloads: Sequence[object]) -> None:
        queue = self.queue(channel)
        for payload in payloads:
            self.tick += 1
            queue.messages.append((self.tick, payload))
        self.notify()


class MemoryFeed:
    """See Feed: of one channel."""

    def __init__(self, backend: MemoryBackend, name: str, start: FeedStart) -> None:
        self.name = name
        self.channels = (name,)
        self.tick = max(start.after_tick, int.from_bytes(start.at, "big") - 1 if start.at else 0)
        self._told = -1
        self._backend = backend
        self._queue = backend.queue(name)
        if (start.after_tick or start.at) and self.tick < self._queue.removed_tick:
            held = (self._queue.removed_tick + 1, backend.tick + 1)
            raise OutOfRange(name, self.tick + 1, *held)
        self._queue.feeds.add(self)

    async def next(self) -> FeedStep:
        """See Feed."""
        await anyio.lowlevel.checkpoint()
        while True:
            found = self._queue.behind(self.tick)
            if found:
                self.tick = found[-1][0]
                # Beyond a full lot there may be more.
                closed = self.tick if len(found) == LOT_MESSAGES else self._backend.tick
                self._told = closed
                self._backend.notify()
                return FeedStep(MemoryLot(self.name, found), closed)
            if self._backend.queue(self.name) is not self._queue:
                raise ChannelDestroyed(self.name)
            if self._backend.tick > self._told:
                self.tick = self._told = self._backend.tick
                return FeedStep(None, self._told)
            await self._backend.moved()

    async def close(self) -> None:
        """See Feed."""
        self._queue.feeds.discard(self)
        self._backend.notify()


class MemoryLot:
    """See Lot."""

    def __init__(self, channel: str, messages: Sequence[tuple[int, object]]) -> None:
        self.channel = channel
        self.ticks = [tick for tick, _ in messages]
        self.payloads: Sequence[object] = [it for _, it in messages]

    @property
    def nbytes(self) -> int:
        """See Lot."""
        return sum([len(it) if isinstance(it, bytes) else _MESSAGE_BYTES for it in self.payloads])

    @property
    def has_rows(self) -> bool:
        """See Lot."""
        return False

    def place(self, index: int) -> bytes:
        """See Lot."""
        return self.ticks[index].to_bytes(8, "big")
