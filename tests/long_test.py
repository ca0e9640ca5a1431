"""What a test that takes long waits for: the stack of each thread and of each asyncio task."""

import asyncio
import faulthandler
import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LONG_S = 240.0
"""Twice the slowest test on a busy machine."""


@contextmanager
def told_when_long(test: str, descriptor: int, long_s: float = LONG_S) -> Iterator[None]:
    """Write it to the file descriptor once, if the block takes longer than that."""
    timer = threading.Timer(long_s, _tell, [test, descriptor, long_s])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell(test: str, descriptor: int, long_s: float) -> None:
    lines = [f"\nstill running after {long_s:g} s: {test}"]
    # Of all event loops: of another thread's there is no list.
    for task in [it for it in gc.get_objects() if isinstance(it, asyncio.Task)]:
        if not task.done():
            lines += [f"task {task.get_name()}:", *_frames(task.get_coro())]
    os.write(descriptor, "\n".join([*lines, ""]).encode())
    faulthandler.dump_traceback(descriptor, all_threads=True)


def _frames(waiting: Any) -> Iterator[str]:
    """From the outermost on; of what waits for something that is no coroutine, its type."""
    while waiting is not None:
        for kind in ("cr", "ag", "gi"):
            if hasattr(waiting, f"{kind}_frame"):
                frame = getattr(waiting, f"{kind}_frame")
                waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
                break
        else:
            yield f"  {waiting!r:.200}"
            return
        if frame is not None:
            code = frame.f_code
            yield f"  {code.co_filename}:{frame.f_lineno} in {code.co_qualname}"
