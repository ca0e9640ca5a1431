"""A call to the coordinator that may simply be made again, until it is answered for good.

Owns the pauses between. Next: broker/client/net/connection.py
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from broker.client.errors import DeadlineExceeded, TidemarkError
from broker.client.net.backoff import Backoff

RETRY_FIRST_MS: Final = 50

T = TypeVar("T")


async def until_done(call: Callable[[float], Awaitable[T]], deadline_s: float) -> T:
    """What may succeed later is tried again until the deadline; then DeadlineExceeded."""
    until_s, backoff = anyio.current_time() + deadline_s, Backoff(first_ms=RETRY_FIRST_MS)
    while True:
        left_s = until_s - anyio.current_time()
        try:
            return await call(max(left_s, 0.0))
        except DeadlineExceeded:
            raise
        except TidemarkError as error:
            backoff = backoff.failed()
            pause_s = backoff.delay_s(1.0)
            if not error.retriable:
                raise
            if anyio.current_time() + pause_s >= until_s:
                raise DeadlineExceeded(f"not done within {deadline_s} s: {error}") from error
        await anyio.sleep(pause_s)
