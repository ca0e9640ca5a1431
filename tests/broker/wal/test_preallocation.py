"""Preallocated segment files: zeroed in steps, taken unfinished when an append needs one."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from broker.wal.segmented.preallocation import Preallocator
from tests.broker.wal.faulty_files import AtOnce, FaultyFiles

STEP = 512 * 1024


class WhenAskedFor(Executor):
    """Begins a job when somebody waits for its result, and not before."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        return Late(lambda: fn(*args, **kwargs))


class Late(Future[Any]):
    """One job of `WhenAskedFor`; it counts as begun."""

    def __init__(self, job: Callable[[], Any]) -> None:
        super().__init__()
        self._job = job

    def cancel(self) -> bool:
        return False

    def result(self, timeout: float | None = None) -> Any:
        return self._job()


def writes(capacity: int, background: Executor) -> int:
    """How often the disk was written to until a blank of this size was taken."""
    files = FaultyFiles()
    files.make_folder("log")
    blanks = Preallocator(files, "log", "new", background)
    blanks.prepare(capacity)
    assert blanks.take(1).capacity == capacity
    return files.counts["write"]


def test_a_preallocated_file_that_is_not_taken_early_is_zeroed_to_its_end() -> None:
    assert writes(6 * STEP, AtOnce()) == 6 * writes(STEP, AtOnce())


def test_taking_a_preallocated_file_waits_for_one_step_of_zeroing_at_most() -> None:
    assert writes(6 * STEP, WhenAskedFor()) == writes(STEP, AtOnce())
