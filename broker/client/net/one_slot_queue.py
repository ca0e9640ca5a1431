"""A queue with one slot, from tasks that produce items to a program that takes one at a time.

The slot holds what one producer put there at once; the others wait. An anyio memory stream is not
used because it warns when it is collected unclosed, and a program may drop a reader in any state
and on any thread.
"""

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class QueueEnded(Exception):
    """Everything was taken, and nothing will follow."""


class QueueClosed(Exception):
    """The consumer closed the queue."""


class OneSlotQueue(Generic[T]):
    """Any number of producers, one consumer."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        # `fast_acquire`: taking a free slot costs no turn of the event loop.
        self._slot = anyio.Semaphore(1, fast_acquire=True)
        self._changed = anyio.Event()
        self._ended = self._closed = False

    async def put(self, items: Sequence[T]) -> None:
        """Wait for the slot, first come first served, and put the items there, at least one.

        The slot is free again once all of them were taken. Returns without yielding to the event
        loop when the slot is free now.
        """
        assert items
        await self._slot.acquire()
        self._items.extend(items)
        self._changed.set()

    async def until_empty(self) -> None:
        """Wait until the slot is free."""
        await self._slot.acquire()
        self._slot.release()

    async def take(self) -> T:
        """The next item. A cancelled call loses none.

        Raises QueueEnded after `end`, once all was taken, and QueueClosed after `close`.
        """
        while True:
            if self._closed:
                raise QueueClosed
            if self._items:
                # No await from here to the return, so a cancelled call cannot have taken an item.
                item = self._items.popleft()
                if not self._items:
                    self._slot.release()
                return item
            if self._ended:
                raise QueueEnded
            if self._changed.is_set():
                self._changed = anyio.Event()
            await self._changed.wait()

    @property
    def closed(self) -> bool:
        """Whether the consumer closed the queue."""
        return self._closed

    def end(self) -> None:
        """Nothing more will be put; what is in the slot may still be taken."""
        self._ended = True
        self._changed.set()

    def close(self) -> None:
        """Nothing more will be taken. The caller cancels producers that wait for the slot."""
        self._closed = True
        self._items.clear()
        self._changed.set()
