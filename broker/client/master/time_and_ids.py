"""Timestamps and ids from the master: single calls, and cached allocators."""

from typing import Final

from anyio.abc import TaskGroup

from broker.client.cluster.retrying import retried
from broker.client.cluster.service import ServiceCalls
from broker.client.master.cached_allocator import COUNT_MAX, CachedAllocator
from broker.model.ids import TimeTick
from schemas.generated.tidemark import v1

TIMESTAMP_AGE_S: Final = 1.0
"""The oldest timestamp that a cached allocator gives out, counted from its request."""


class TimeAndIds:
    """Errors that may pass are retried until the deadline, then raised."""

    def __init__(self, calls: ServiceCalls, tasks: TaskGroup, *, deadline_s: float) -> None:
        self._calls = calls
        self._deadline_s = deadline_s
        self._timestamps = CachedAllocator(
            self.alloc_timestamp,
            tasks,
            calls.check_usable,
            batch=COUNT_MAX,
            age_s_max=TIMESTAMP_AGE_S,
            what="timestamps",
        )
        self._ids = CachedAllocator(
            self.alloc_id, tasks, calls.check_usable, batch=COUNT_MAX, what="ids"
        )

    @property
    def timestamps(self) -> CachedAllocator:
        """Timestamps from a batch that this client fetched up to a second ago."""
        return self._timestamps

    @property
    def ids(self) -> CachedAllocator:
        """Ids from a batch that this client has fetched."""
        return self._ids

    async def alloc_timestamp(self, count: int = 1) -> TimeTick:
        """The first of `count` consecutive timestamps of the cluster, which are the caller's.

        They are larger than all that were given out before, also over restarts of the server. Those
        of `log.master.timestamps` need no call each, and are up to a second old. InvalidArgument
        unless 1 <= count <= 65,536. While timestamps would be more than a second ahead of the
        server's clock they are waited for: ServerFailed at the deadline.
        """

        async def attempt() -> TimeTick:
            request = v1.AllocTimestampRequest(count=_checked(count))
            answer = await self._calls.ask("AllocTimestamp", request, v1.AllocTimestampResponse)
            return TimeTick(answer.start_time)

        return await retried(attempt, self._deadline_s)

    async def alloc_id(self, count: int = 1) -> int:
        """The first of `count` consecutive ids, which no other caller gets: 64 bits, signed.

        They grow, also over restarts of the server. `log.master.ids` needs no call each.
        InvalidArgument unless 1 <= count <= 65,536.
        """

        async def attempt() -> int:
            request = v1.AllocIdRequest(count=_checked(count))
            return (await self._calls.ask("AllocID", request, v1.AllocIdResponse)).start_id

        return await retried(attempt, self._deadline_s)


def _checked(count: int) -> int:
    """The count as it fits the wire; the server refuses 0 and whatever is too large."""
    return count if 0 <= count < 1 << 32 else 0
