"""Runs work beside a block, and ends it with the block."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio


@asynccontextmanager
async def beside(*work: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run each of `work` until the block ends. What the block raises has no group round it."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        for each in work:
            tasks.start_soon(each)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised below, with no group round it
            failure = error
        finally:
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
