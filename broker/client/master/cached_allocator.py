"""Gives out timestamps or ids from batches fetched from the master, without a call for each."""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import TaskGroup

from broker.client.errors import BadTarget, ClosedClient, ServerFailed, TidemarkError
from broker.core.master.cached_range import EMPTY, CachedRange, prefix_that_fits

COUNT_MAX: Final = 65_536
"""The most of one request, as of the server."""

WAITING_MAX: Final = 10_000
"""Requests that may wait for one fetch."""

Fetch = Callable[[int], Awaitable[int]]
"""Fetches so many consecutive numbers; returns the first. Has a deadline."""


@dataclass(eq=False, slots=True)
class _Waiter:
    count: int
    done: anyio.Event = field(default_factory=anyio.Event)
    first: int | None = None
    error: TidemarkError | None = None


class CachedAllocator:
    """Numbers that no other caller gets, each larger than all that this allocator gave before.

    `ids = log.master.ids` or `log.master.timestamps`, then `first = await ids.alloc(10)`. For any
    number of tasks; requests are served in their order. A request that the cached batch cannot
    serve makes one fetch for all that wait, of at least `batch` numbers.
    """

    def __init__(
        self,
        fetch: Fetch,
        tasks: TaskGroup,
        check_usable: Callable[[], None],
        *,
        batch: int,
        age_s_max: float | None = None,
        what: str = "numbers",
    ) -> None:
        self._fetch = fetch
        self._tasks = tasks
        self._check_usable = check_usable
        self._batch = batch
        self._age_s_max = age_s_max
        self._what = what
        self._cached = EMPTY
        self._waiting: deque[_Waiter] = deque()
        self._fetching = False
        self.fetches = 0
        """How many batches were requested."""

    async def alloc(self, count: int = 1) -> int:
        """The first of `count` consecutive numbers, which are the caller's.

        1 <= count <= 65,536; BadTarget for others. Waits only while a batch is fetched. When that
        fails, raises its error, in all requests that wait. A cancelled request takes nothing, or
        leaves a gap. ServerFailed, to be retried, when 10,000 requests wait already.
        """
        self._check_usable()
        if not 1 <= count <= COUNT_MAX:
            raise BadTarget(f"the number of {self._what} must be 1 to {COUNT_MAX}, not {count}")
        if not self._waiting and self._room() >= count:
            first = self._cached.first
            self._cached = self._cached.take(count)
            return first
        if len(self._waiting) >= WAITING_MAX:
            raise ServerFailed(f"{WAITING_MAX} requests for {self._what} wait already; try again")
        waiter = _Waiter(count)
        self._waiting.append(waiter)
        self._start_fetching()
        try:
            await waiter.done.wait()
        except BaseException:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            raise
        if waiter.first is None:
            raise waiter.error or ClosedClient("the client is closed; connect again")
        return waiter.first

    def forget(self) -> None:
        """Drop the cached batch: the next request fetches a new one."""
        self._cached = EMPTY

    def _room(self) -> int:
        if self._cached.too_old(anyio.current_time(), self._age_s_max):
            self._cached = EMPTY
        return self._cached.count

    def _start_fetching(self) -> None:
        if not self._fetching:
            self._fetching = True
            # A task of the client, so that a cancelled request does not fail the others that wait.
            self._tasks.start_soon(self._fetch_while_waited_for)

    async def _fetch_while_waited_for(self) -> None:
        try:
            while self._waiting:
                # Every request fits a fresh batch, so each fetch serves at least one.
                wanted = min(COUNT_MAX, max(self._batch, sum(it.count for it in self._waiting)))
                began_s = anyio.current_time()
                self.fetches += 1
                try:
                    first = await self._fetch(wanted)
                except TidemarkError as error:
                    self._fail_waiting(error)
                    return
                # Counted from the request: the server took them no earlier.
                self._cached = CachedRange(first, wanted, began_s)
                self._serve()
        finally:
            # Before anything else can wait: the next request starts a new task.
            self._fetching = False
            self._fail_waiting(None)

    def _serve(self) -> None:
        """Give the longest prefix of the waiting requests its numbers."""
        for _ in range(prefix_that_fits((it.count for it in self._waiting), self._cached.count)):
            waiter = self._waiting.popleft()
            waiter.first = self._cached.first
            self._cached = self._cached.take(waiter.count)
            waiter.done.set()

    def _fail_waiting(self, error: TidemarkError | None) -> None:
        """Fail all that wait; None: the client is closed."""
        while self._waiting:
            waiter = self._waiting.popleft()
            waiter.error = error
            waiter.done.set()
