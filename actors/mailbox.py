"""The mailbox of one incarnation: a lane for child events and a bounded lane for messages.

Order of lanes: kill > stop > child events > messages. Kill and stop are not queued here: the cell
checks them before it takes a batch.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Any

from actors.envelope import Envelope

Post = Envelope[Any]


class Overflow(Enum):
    """What happens to a message when the lane is full."""

    BLOCK = "block"
    SHED = "shed"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class MailboxSpec:
    """How many messages may wait, what happens to the next one, and the largest batch."""

    bound: int = 1024
    overflow: Overflow = Overflow.FAIL
    batch_max: int = 1

    def __post_init__(self) -> None:
        """Check the bounds."""
        if self.bound < 1 or self.batch_max < 1:
            raise ValueError("bound and batch_max must be at least 1")


class Mailbox:
    """The lanes of one incarnation, with a single consumer."""

    __slots__ = ("_events", "_line", "_loop", "_messages", "_waiter", "shed", "spec")

    def __init__(self, spec: MailboxSpec) -> None:
        self.spec = spec
        self.shed = 0
        self._messages: deque[Post] = deque()
        self._events: deque[Post] = deque()
        self._line: deque[tuple[Post, asyncio.Future[bool] | None]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def depth(self) -> int:
        """How many messages wait, those of senders waiting for room included."""
        return len(self._messages) + len(self._events) + len(self._line)

    def offer(self, envelope: Post) -> bool:
        """Queue a message; False, without any effect, if the lane is full."""
        # No queued sender is overtaken: `_admit` fills each free place from the line at once, so
        # senders are in line only while the lane is full.
        if len(self._messages) >= self.spec.bound:
            return False
        self._messages.append(envelope)
        # Every message passes here: no call unless the consumer waits.
        if self._waiter is not None:
            self.wake()
        return True

    def line_up(self, envelope: Post, admitted: asyncio.Future[bool] | None = None) -> None:
        """Queue for room, first come, first served; `admitted` becomes True once it is queued."""
        self._line.append((envelope, admitted))

    def leave(self, envelope: Post) -> None:
        """Stop waiting for room; no-op if it was queued already, or is gone."""
        for place in self._line:
            if place[0] is envelope:
                self._line.remove(place)
                return

    def withdraw(self, envelope: Post) -> None:
        """Remove a message that is not delivered yet; no-op if it is gone."""
        if envelope in self._messages:
            self._messages.remove(envelope)
            self._admit()

    def holds(self, envelope: Post) -> bool:
        """Whether it still waits on the message lane."""
        return envelope in self._messages

    def put_tick(self, envelope: Post) -> None:
        """Queue a timer's message, even beyond the bound: each timer has at most one queued."""
        self._messages.append(envelope)
        self.wake()

    def put_event(self, envelope: Post) -> None:
        """Queue a child event; their number is bounded by what the actor starts and watches."""
        self._events.append(envelope)
        self.wake()

    def take(self) -> list[Post]:
        """The next batch, child events first; empty if nothing waits."""
        room = self.spec.batch_max
        if self._events:
            batch = [self._events.popleft() for _ in range(min(room, len(self._events)))]
            room -= len(batch)
        else:
            batch = []
        messages = self._messages
        # The usual case, without one popleft for each message.
        if len(messages) <= room:
            batch.extend(messages)
            messages.clear()
        else:
            batch.extend([messages.popleft() for _ in range(room)])
        if self._line:
            self._admit()
        return batch

    def wake(self) -> None:
        """Make `wait` return; no-op if nobody waits."""
        waiter, self._waiter = self._waiter, None
        # It is done already if the consumer was cancelled while it waited.
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self) -> None:
        """Return when a message is queued, or at `wake`. Call it only after an empty `take`."""
        # Kept: until Python 3.12 each look-up of the running loop is a system call.
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        # No wake-up is lost: nothing else runs between the caller's empty `take` and this line.
        self._waiter = self._loop.create_future()
        await self._waiter

    def clear(self) -> None:
        """Drop all messages, and refuse senders that wait for room."""
        line = [admitted for _, admitted in self._line if admitted is not None]
        self._line.clear()
        self._messages.clear()
        self._events.clear()
        for admitted in line:
            if not admitted.done():
                admitted.set_result(False)

    def _admit(self) -> None:
        while self._line and len(self._messages) < self.spec.bound:
            envelope, admitted = self._line.popleft()
            if admitted is not None:
                # The sender timed out or was cancelled, and has not run since, to remove its place.
                if admitted.done():
                    continue
                admitted.set_result(True)
            self._messages.append(envelope)
