"""Streams on RocksMQ. The ids of one folder grow over all of its channels, so they are its ticks.

A stream is a consumer group of its own for as long as it is open, so streams of one subscription
get everything each, and retention waits for the slowest.
"""

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar
from uuid import uuid4

import anyio
import anyio.lowlevel

from broker.client.errors import (
    BadTarget,
    ClosedClient,
    DeadlineExceeded,
    TidemarkError,
)
from broker.model.cut import Cut
from broker.model.ids import MessageId, TimeTick
from broker.msgstream.backends.memory_backend import MemoryLot
from broker.msgstream.backends.stream_backend import Feed, FeedStart, FeedStep, RowShaper
from broker.msgstream.message_reader import log
from broker.msgstream.stream_errors import BadPosition, ChannelDestroyed
from broker.rocksmq import (
    RocksMQ,
    RocksMQClosed,
    RocksMQError,
    SeekOutOfRange,
    UnknownChannel,
    UnknownConsumerGroup,
)

T = TypeVar("T")
LOT_MESSAGES: Final = 1024
SEND_MESSAGES: Final = 1024
_EARLIEST: Final = -1


class QueueFailed(TidemarkError):
    """RocksMQ refused or failed; the cause is its own error."""


class RmqBackend:
    """See StreamBackend. A channel is made by the first use of its name."""

    def __init__(self, queues: RocksMQ) -> None:
        self._queues = queues

    async def resolve(self, names: Sequence[str]) -> list[str]:
        """See StreamBackend."""
        for name in names:
            with _told(name):
                await self._queues.create_channel(name, exist_ok=True)
        return list(names)

    async def send(self, channel: str, payloads: Sequence[object], deadline_s: float) -> None:
        """See StreamBackend: synced, in batches that are stored whole."""
        raw = [it for it in payloads if isinstance(it, bytes)]
        assert len(raw) == len(payloads), "RocksMQ carries bytes: use ProtoUDFactory"
        for first in range(0, len(raw), SEND_MESSAGES):
            batch = raw[first : first + SEND_MESSAGES]
            with _told(channel):
                await _within(deadline_s, self._queues.produce(channel, batch))

    async def send_to_all(
        self, channels: Sequence[str], payloads: Sequence[object], deadline_s: float
    ) -> None:
        """Promises less than StreamBackend: channel by channel, so a crash may leave some without.

        A reader by time ticks copes with that: a tick that one channel lacks joins two windows.
        """
        for channel in channels:
            await self.send(channel, payloads, deadline_s)

    def feeds(self, starts: Mapping[str, FeedStart], *, apart: bool) -> list[Feed]:
        """See StreamBackend; there is one for each channel in any case."""
        group = f"stream-{uuid4().hex}"
        found = [RmqFeed(self._queues, name, start, group) for name, start in starts.items()]
        for each in [] if apart else found:
            # A message in any channel closes its tick on all of them.
            each.siblings = [it for it in found if it is not each]
        return [*found]

    def tick_of(self, place: bytes) -> int:
        """See StreamBackend."""
        if len(place) != 8:
            raise BadPosition(f"{place!r} is no place in a channel of RocksMQ")
        return int.from_bytes(place, "big")

    def end_of_tick(self, tick: int) -> bytes:
        """See StreamBackend."""
        return tick.to_bytes(8, "big")

    async def cut(self, channels: Iterable[str], tick: int) -> Cut:
        """See StreamBackend: ids are ticks."""
        return Cut(TimeTick(tick), dict.fromkeys(channels, MessageId(tick + 1)))

    async def row_shaper(self, channels: Sequence[str]) -> RowShaper:
        """Refused with BadTarget."""
        raise BadTarget("channels of RocksMQ carry messages and no Arrow rows: take the msgs")


class RmqFeed:
    """See Feed: of one channel."""

    def __init__(self, queues: RocksMQ, name: str, start: FeedStart, group: str) -> None:
        self.name = name
        self.channels = (name,)
        self._queues = queues
        self._group = group
        at = int.from_bytes(start.at, "big") if start.at else 0
        self._from = max(at, start.after_tick + 1 if start.after_tick else 0)
        self._told = self._from - 1
        self.opened = False
        self.siblings: Sequence[RmqFeed] = ()

    async def next(self) -> FeedStep:
        """See Feed."""
        with _told(self.name):
            if not self.opened:
                # Shielded, as the reads below: cancelled half-way it would lose what it was given.
                with anyio.CancelScope(shield=True):
                    await self._open()
            while True:
                # Before the look at the channel: what comes later has a larger id.
                newest = self._newest()
                with anyio.CancelScope(shield=True):
                    found = await self._queues.consume(self._group, self.name, LOT_MESSAGES)
                if found:
                    last = found[-1].msg_id
                    self._told = last if len(found) == LOT_MESSAGES else max(last, newest)
                    lot = MemoryLot(self.name, [(it.msg_id, it.payload) for it in found])
                    return FeedStep(lot, self._told)
                if newest > self._told:
                    self._told = newest
                    return FeedStep(None, newest)
                await self._moved()

    async def close(self) -> None:
        """See Feed."""
        if not self.opened:
            return
        self.opened = False
        try:
            await self._queues.destroy_consumer_group(self._group, self.name)
        except RocksMQError:
            pass  # the channel, or the whole folder, was closed before

    async def _open(self) -> None:
        await self._queues.create_consumer_group(self._group, self.name, exist_ok=True)
        self.opened = True
        if self._from:
            held = self._queues.describe_channel(self.name)
            at = min(self._from, held.end_id)
            if at < held.begin_id:
                # The queue does not tell whether there were messages in between.
                log.warning(
                    "%s continues at id %d, where its oldest message is, and not at %d; what"
                    " retention removed in between is missing",
                    self.name,
                    held.begin_id,
                    at,
                )
                at = held.begin_id
            await self._queues.seek(self._group, self.name, at)

    def _newest(self) -> int:
        """The newest id of the folder: every later message has a larger one."""
        views = [self._queues.describe_channel(it) for it in self._queues.channels()]
        return max((it.end_id - 1 for it in views), default=0)

    async def _moved(self) -> None:
        """Wait for a message here, or in another channel of the stream."""
        await anyio.lowlevel.checkpoint()
        opened = [self, *[it for it in self.siblings if it.opened]]
        errors: list[RocksMQError] = []

        async def one(feed: RmqFeed) -> None:
            try:
                await self._queues.wait(self._group, feed.name)
            except RocksMQError as error:
                errors.append(error)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for feed in opened:
                tasks.start_soon(one, feed)
        if errors:
            raise errors[0]


@contextmanager
def _told(channel: str) -> Iterator[None]:
    """Errors of RocksMQ as those of streams."""
    try:
        yield
    except (UnknownChannel, UnknownConsumerGroup):
        raise ChannelDestroyed(channel) from None
    except RocksMQClosed as error:
        raise ClosedClient(str(error)) from None
    except SeekOutOfRange as error:
        raise BadPosition(f"{error}; retention has passed it, or it is of another folder") from None
    except RocksMQError as error:
        raise QueueFailed(f"{channel}: {error}") from error


async def _within(deadline_s: float, call: Awaitable[T]) -> T:
    try:
        with anyio.fail_after(deadline_s):
            return await call
    except TimeoutError:
        raise DeadlineExceeded(f"RocksMQ did not store it within {deadline_s:g} s") from None
