"""The writing thread: jobs in order, all of them, and an end when it is collected."""

import asyncio
import gc
import threading
from functools import partial

import pytest

from broker.wal.segmented.worker import Worker


async def test_jobs_run_one_after_the_other_off_the_event_loop() -> None:
    worker, seen = Worker("w"), list[tuple[int, int]]()

    def note(number: int) -> None:
        seen.append((number, threading.get_ident()))

    await asyncio.gather(*(worker.run(partial(note, number)) for number in range(20)))
    assert [n for n, _ in seen] == list(range(20))
    assert {thread for _, thread in seen} != {threading.get_ident()}
    worker.stop()


async def test_what_a_job_raises_reaches_its_caller() -> None:
    worker = Worker("w")
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0)
    assert await worker.run(lambda: 3) == 3
    worker.stop()


async def test_a_cancelled_caller_does_not_stop_the_work() -> None:
    worker, go, done = Worker("w"), threading.Event(), threading.Event()

    def work() -> None:
        go.wait(5)
        done.set()

    caller = asyncio.ensure_future(worker.run(work))  # noqa: TID251 - cancelled below
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go.set()
    await worker.run(lambda: None)
    assert done.is_set()
    worker.stop()


async def test_what_opens_after_its_caller_has_left_is_closed() -> None:
    worker, go, closed = Worker("w"), threading.Event(), list[str]()
    thread = await worker.run(threading.current_thread)

    def work() -> str:
        go.wait(5)
        return "a log"

    opening = asyncio.ensure_future(  # noqa: TID251 - cancelled below
        worker.run_to_open(work, closed.append)
    )
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not closed
    go.set()
    await asyncio.to_thread(thread.join, 5)
    assert closed == ["a log"]


async def test_what_cannot_be_opened_is_not_closed_and_its_thread_ends() -> None:
    worker, closed = Worker("w"), list[float]()
    thread = await worker.run(threading.current_thread)
    with pytest.raises(ZeroDivisionError):
        await worker.run_to_open(lambda: 1 / 0, closed.append)
    await asyncio.to_thread(thread.join, 5)
    assert not closed
    assert not thread.is_alive()


async def test_the_thread_ends_when_the_worker_is_stopped_or_forgotten() -> None:
    for stop in (True, False):
        worker = Worker("w")
        thread = await worker.run(threading.current_thread)
        if stop:
            worker.stop()
            worker.stop()
        del worker
        gc.collect()
        await asyncio.to_thread(thread.join, 5)
        assert not thread.is_alive()
