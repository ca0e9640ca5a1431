"""Ids of messages: hybrid time, never given out twice, across restarts and clock steps."""

from collections.abc import Awaitable, Callable
from typing import Protocol, assert_never

import anyio

from broker.core.rocksmq import queue_rules
from broker.core.time import tso
from broker.rocksmq.queue_errors import check


class IDAllocator(Protocol):
    """Gives out ids: signed 64-bit, each larger than all before it, over restarts, too.

    A queue wants an allocator that no other program moves back. Calls may run concurrently.
    """

    async def alloc(self, count: int) -> tuple[int, int]:
        """Contiguous ids [start, end), 1 <= count <= MESSAGES_MAX."""
        ...

    async def alloc_one(self) -> int:
        """One id."""
        ...

    async def update_id(self) -> None:
        """Reserve more ids now, so that the next calls need not wait for that."""
        ...


class StoredIds:
    """An IDAllocator over a durable bound: an id is `milliseconds << 18 | counter`.

    Ids are given out from memory below the bound; one save lasts for about three seconds. Raises
    what `save` raises; then no ids were given out.
    """

    def __init__(
        self,
        window: tso.HybridClock,
        save: Callable[[int], Awaitable[None]],
        wall_ms: Callable[[], int],
    ) -> None:
        """`save` makes a bound durable."""
        self._window, self._save, self._wall_ms = window, save, wall_ms
        self._saving = anyio.Lock()

    def take(self, count: int) -> int | None:
        """The first of `count` ids, without waiting; None when a bound must be saved first."""
        reserved = tso.reserve(self._window, count, self._wall_ms())
        if isinstance(reserved, tso.SaveFirst):
            return None
        self._window = reserved.after
        return reserved.first

    async def alloc(self, count: int) -> tuple[int, int]:
        """See IDAllocator. Raises BadQueueArgument for other counts."""
        check(queue_rules.alloc_fault(count))
        async with self._saving:
            while True:
                match tso.reserve(self._window, count, self._wall_ms()):
                    case tso.ReservedTicks(after, first):
                        self._window = after
                        return first, first + count
                    case tso.SaveFirst(bound_ms):
                        await self._extend(bound_ms)
                    case other:
                        assert_never(other)

    async def alloc_one(self) -> int:
        """See IDAllocator."""
        start, _ = await self.alloc(1)
        return start

    async def update_id(self) -> None:
        """See IDAllocator."""
        async with self._saving:
            due = tso.bound_due(self._window, self._wall_ms())
            if due is not None:
                await self._extend(due)

    async def _extend(self, bound_ms: int) -> None:
        saved = self._window.bound_ms
        await self._save(bound_ms)
        self._window = tso.granted(self._window, saved, bound_ms)
