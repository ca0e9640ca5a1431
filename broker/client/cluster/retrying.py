"""Makes a call again until it succeeds, fails for good, or its deadline passes."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from broker.client.errors import DeadlineExceeded, NodeUnreachable, TidemarkError
from broker.client.net.backoff import Backoff

T = TypeVar("T")


def is_retriable(error: TidemarkError) -> bool:
    """Whether the same call may succeed within its deadline."""
    # An address that cannot be connected to is corrected by people: that takes longer.
    return error.retriable and not isinstance(error, NodeUnreachable)


async def retried(
    call: Callable[[], Awaitable[T]],
    deadline_s: float,
    *,
    may_retry: Callable[[TidemarkError], bool] = is_retriable,
) -> T:
    """The result of the first call that succeeds, with pauses in between.

    At the deadline it raises the error of the last call; DeadlineExceeded if none has ended.
    """
    backoff = Backoff()
    failure: TidemarkError = DeadlineExceeded(f"no answer within {deadline_s} s")
    with anyio.move_on_after(deadline_s):
        while True:
            try:
                return await call()
            except TidemarkError as error:
                if not may_retry(error):
                    raise
                failure = error
            backoff = backoff.failed()
            await anyio.sleep(backoff.delay_s(1.0))
    raise failure
