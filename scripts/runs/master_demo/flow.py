"""How far the loading is: what the proxies have appended, and whom that wakes."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable

from runs.master_demo.flights import Work


class Flow:
    """The batches that are still to be appended, and how many flights are appended."""

    def __init__(self, works: Iterable[Work]) -> None:
        self._left = deque(works)
        self.total = sum(it.rows.num_rows for it in self._left)
        self.months = list(dict.fromkeys(it.month for it in self._left))
        self._counts = Counter[int]()
        for it in self._left:
            self._counts[it.month] += it.rows.num_rows
        self.done = self.batches = 0
        self.speed = False
        """Whether the collection has the column by now."""
        self.end_tick = 0
        """Everything that was appended lies at or below it; 0 while the end is not known."""
        self._partitioned: set[int] = set()
        self._moved = asyncio.Condition()

    def ended_by(self, tick: int) -> bool:
        """Whether a reader that is complete up to this tick has everything."""
        return 0 < self.end_tick <= tick

    def take(self) -> Work | None:
        """The next batch; None when all are taken."""
        return self._left.popleft() if self._left else None

    def before(self, month: int) -> float:
        """The share of flights of the months before this one."""
        earlier = self.months[: self.months.index(month)]
        return float(sum(self._counts[it] for it in earlier) / self.total)

    async def appended(self, count: int) -> None:
        """So many flights of one batch are durable."""
        async with self._moved:
            self.done += count
            self.batches += 1
            self._moved.notify_all()

    async def partition_created(self, month: int) -> None:
        """Flights of this month may be appended now."""
        async with self._moved:
            self._partitioned.add(month)
            self._moved.notify_all()

    async def until_partitioned(self, month: int) -> None:
        """Wait for the partition of a month."""
        async with self._moved:
            await self._moved.wait_for(lambda: month in self._partitioned)

    async def reached(self, share: float) -> None:
        """Wait until that share of all flights is durable."""
        async with self._moved:
            await self._moved.wait_for(lambda: self.done >= share * self.total)

    async def more(self, batches: int) -> None:
        """Wait for so many more batches, or for the end."""
        async with self._moved:
            wanted = self.batches + batches
            await self._moved.wait_for(lambda: self.batches >= wanted or self.done == self.total)
