"""From tasks that have things to the program that takes them one at a time.

It owns the single place between them, which holds what one task had in its hand. Why not a memory
stream: a program may drop a reader in any state and any thread of its own making, and nothing here
minds being collected unclosed.
Next: broker/client/read/scanner.py
"""

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class NothingMore(Exception):
    """Everything was taken, and nothing will follow."""


class TakerLeft(Exception):
    """Whoever took things has left."""


class Rendezvous(Generic[T]):
    """Any number of givers, one taker."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._place = anyio.Semaphore(1, fast_acquire=True)
        self._news = anyio.Event()
        self._ended = self._left = False

    async def put(self, items: Sequence[T]) -> None:
        """Wait for the place, first come first served, and put the items there, one at least.

        It is free again when all of them were taken. When it is free now, nothing is waited for.
        """
        assert items
        await self._place.acquire()
        self._waiting.extend(items)
        self._news.set()

    async def until_taken(self) -> None:
        """Wait until the place is free."""
        await self._place.acquire()
        self._place.release()

    async def take(self) -> T:
        """The next item. A take that is cancelled loses none.

        Raises NothingMore after `end`, when all was taken, and TakerLeft after `leave`.
        """
        while True:
            if self._left:
                raise TakerLeft
            if self._waiting:
                item = self._waiting.popleft()
                if not self._waiting:
                    self._place.release()
                return item
            if self._ended:
                raise NothingMore
            if self._news.is_set():
                self._news = anyio.Event()
            await self._news.wait()

    def end(self) -> None:
        """Nothing more will be put; what is there may still be taken."""
        self._ended = True
        self._news.set()

    def leave(self) -> None:
        """Nothing more will be taken. Givers that wait are for the caller to cancel."""
        self._left = True
        self._waiting.clear()
        self._news.set()
