# ruff: noqa: SLF001 - this package is the one that may know grpclib's inside (see its docstring)
"""Distinguishes grpclib's cancellations, which wake the task of a call, from those from outside."""

import asyncio
from collections import Counter
from types import TracebackType
from typing import Any

import grpclib.client
from grpclib.utils import Wrapper


def separate_wakeups(call: "grpclib.client.Stream[Any, Any]") -> None:
    """Leave only cancellations from outside to the tasks of a call that was just entered."""
    call._wrapper = Wakeups()


class Wakeups(Wrapper):
    """Ends the waits of a call with its error, as grpclib does, and takes back its cancellations.

    grpclib cancels a task that waits, and raises the error in place of CancelledError. With its own
    class the count of cancellations stays raised, so that a later `asyncio.timeout` or anyio scope
    in the task takes its own deadline for a cancellation from outside; and a task that is cancelled
    from outside in the same turn of the event loop goes on with the error, as if it were not.
    """

    def __init__(self) -> None:
        super().__init__()
        self._own = Counter[asyncio.Task[Any]]()
        self._before: dict[asyncio.Task[Any], int] = {}

    def __enter__(self) -> None:
        super().__enter__()
        task = _task()
        self._before[task] = task.cancelling()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        task = _task()
        for _ in range(self._own.pop(task, 0)):
            task.uncancel()
        is_cancelled = task.cancelling() > self._before.pop(task)
        if is_cancelled and exc_type is asyncio.CancelledError:
            self._tasks.discard(task)
        else:
            super().__exit__(exc_type, exc_val, exc_tb)

    def cancel(self, error: Exception) -> None:
        """Wake all tasks, which raise the error. May be called again before they run."""
        self._own.update(self._tasks)
        super().cancel(error)


def _task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
