"""Several coroutines at once; the first one to end cancels the others.

A task group wraps every error in an ExceptionGroup; callers here need the error itself.
"""

from collections.abc import Awaitable, Callable

import anyio


async def until_first(*works: Callable[[], Awaitable[None]]) -> None:
    """Run all at once until one returns or raises; the others are cancelled and awaited.

    Raises the first error as it is.
    """
    failure: Exception | None = None

    async def run(work: Callable[[], Awaitable[None]]) -> None:
        nonlocal failure
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - raised again below, without an ExceptionGroup
            failure = failure or error
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for work in works:
            tasks.start_soon(run, work)
    if failure is not None:
        raise failure
