"""Repairs a task's cancellation count after grpclib has cancelled the task to wake it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def restored_cancellation() -> Iterator[None]:
    """Set the current task's cancellation count back when an `Exception` leaves the block.

    grpclib wakes a task by cancelling it and then raises something other than CancelledError. The
    count of cancellations stays raised, so a later `asyncio.timeout` or anyio scope in the same
    task would take its own deadline for a cancellation from outside. A real cancellation leaves
    the block as CancelledError, which is no `Exception`, and its count stays.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    except Exception:
        # Only what was added inside the block: a cancellation that came before it is still meant.
        while task is not None and task.cancelling() > before:
            task.uncancel()
        raise
