"""Repeats an idempotent call to the coordinator until it succeeds or the deadline passes."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from broker.client.errors import DeadlineExceeded, TidemarkError
from broker.client.net.backoff import Backoff

RETRY_FIRST_MS: Final = 50

T = TypeVar("T")


async def retry_call(call: Callable[[float], Awaitable[T]], deadline_s: float) -> T:
    """Call with the seconds that are left, again after each retriable error, with back-off.

    Raises DeadlineExceeded when the deadline passes, and errors that are not retriable at once.
    The call must be safe to repeat: an attempt whose answer was lost may have been carried out.
    """
    until_s, backoff = anyio.current_time() + deadline_s, Backoff(first_ms=RETRY_FIRST_MS)
    while True:
        left_s = until_s - anyio.current_time()
        try:
            return await call(max(left_s, 0.0))
        # Although it is retriable: this attempt had all the time that was left.
        except DeadlineExceeded:
            raise
        except TidemarkError as error:
            backoff = backoff.failed()
            pause_s = backoff.delay_s(1.0)
            if not error.retriable:
                raise
            # A pause that would end after the deadline leaves no time for another attempt.
            if anyio.current_time() + pause_s >= until_s:
                raise DeadlineExceeded(f"not done within {deadline_s} s: {error}") from error
        await anyio.sleep(pause_s)
