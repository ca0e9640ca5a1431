"""Slows all appends of a server to the rate that disk and memory allow."""

from asyncio import get_running_loop
from collections.abc import Callable

import anyio

from broker.core.pressure.rate_limit import RateLimit, RateState
from broker.core.pressure.token_bucket import Exhausted, TokenBucket

BURST_S = 0.25
"""What the bucket holds, in seconds of its rate."""
WAIT_S_MAX = 5.0
"""A stream waits no longer at one time: it looks at the limit again."""


class AppendPace:
    """One for a server. Costs nothing while appends are not limited."""

    def __init__(self, now_s: Callable[[], float] | None = None) -> None:
        self._now_s = now_s
        self._bucket: TokenBucket | None = None

    async def wait(self, limit: Callable[[], RateLimit], size_bytes: int) -> None:
        """Wait until so many bytes may be appended at the rate of `limit`, which may change.

        Returns at once unless the state is SLOWDOWN: who is rejected learns it from the Appender.
        """
        while (now := limit()).state is RateState.SLOWDOWN:
            taken = self._bucket_at(now.bytes_s).take(size_bytes, self._time_s(), WAIT_S_MAX)
            if not isinstance(taken, Exhausted):
                await anyio.sleep(taken.wait_s)
                return
            await anyio.sleep(WAIT_S_MAX)

    def _bucket_at(self, bytes_s: int) -> TokenBucket:
        now_s = self._time_s()
        if self._bucket is None:
            self._bucket = TokenBucket(bytes_s, bytes_s * BURST_S, now_s)
        elif self._bucket.rate != bytes_s:
            self._bucket.change(bytes_s, bytes_s * BURST_S, now_s)
        return self._bucket

    def _time_s(self) -> float:
        return self._now_s() if self._now_s is not None else get_running_loop().time()
