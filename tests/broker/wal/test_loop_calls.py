"""Calls from other threads: in order, all of them, whatever one of them does."""

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from functools import partial

import pytest

from actors.identity import Identity, assumed, identity
from broker.wal.segmented.loop_calls import LoopCalls
from broker.wal.segmented.worker import Worker


async def test_calls_of_a_thread_run_on_the_loop_in_their_order() -> None:
    calls, seen, over = LoopCalls.of(asyncio.get_running_loop()), list[int](), asyncio.Event()
    threads = set[int]()

    def put_all() -> None:
        for number in range(10_000):  # more than the pipe takes at once
            calls.put(partial(seen.append, number))
        calls.put(lambda: threads.add(threading.get_ident()))
        calls.put(over.set)

    thread = threading.Thread(target=put_all)
    thread.start()
    await asyncio.wait_for(over.wait(), 30)
    thread.join()
    assert seen == list(range(10_000))
    assert threads == {threading.get_ident()}


async def test_more_wake_ups_than_the_pipe_holds_are_no_error() -> None:
    calls, seen, over = LoopCalls.of(asyncio.get_running_loop()), list[int](), asyncio.Event()
    for number in range(100_000):
        calls.put(partial(seen.append, number))
    calls.put(over.set)
    await asyncio.wait_for(over.wait(), 30)
    assert len(seen) == 100_000


async def test_a_call_that_fails_is_reported_and_keeps_none_back() -> None:
    loop, faults, over = asyncio.get_running_loop(), list[object](), asyncio.Event()
    loop.set_exception_handler(lambda _, about: faults.append(about["exception"]))
    calls = LoopCalls.of(loop)

    def fail() -> None:
        raise LookupError("mine")

    calls.put(fail)
    calls.put(over.set)
    await asyncio.wait_for(over.wait(), 30)
    loop.set_exception_handler(None)
    assert [type(it) for it in faults] == [LookupError]


async def test_calls_do_not_run_as_the_actor_that_was_the_first_to_use_the_loop() -> None:
    seen, over = list[Identity | None](), asyncio.Event()
    with assumed(Identity("/root/first", 1)):
        calls = LoopCalls(asyncio.get_running_loop())
    calls.put(lambda: seen.append(identity()))
    calls.put(over.set)
    await asyncio.wait_for(over.wait(), 30)
    assert seen == [None]


async def test_a_loop_has_one_pipe_for_all_of_its_workers() -> None:
    loop = asyncio.get_running_loop()
    assert LoopCalls.of(loop) is LoopCalls.of(loop)


async def test_the_result_of_a_job_needs_no_call_soon_threadsafe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It would wake the loop's thread while the interpreter's lock is held.
    def refuse(*_: object) -> None:
        raise AssertionError("call_soon_threadsafe")

    loop, worker = asyncio.get_running_loop(), Worker("w")
    monkeypatch.setattr(loop, "call_soon_threadsafe", refuse)
    assert await asyncio.wait_for(worker.run(lambda: 3), 30) == 3
    monkeypatch.undo()
    worker.stop()


def test_the_pipe_is_closed_with_the_last_who_may_write_to_it() -> None:
    kept: list[LoopCalls] = []

    async def main() -> None:
        kept.append(LoopCalls.of(asyncio.get_running_loop()))

    asyncio.run(main())
    (calls,) = kept
    never: Callable[[], object] = list
    calls.put(never)  # the loop is closed, the pipe is not
    ends = calls._ends
    assert [os.fstat(end).st_nlink for end in ends] == [1, 1]
    kept.clear()
    del calls
    gc.collect()
    for end in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end)
