"""What the disk gives a loop that does nothing else: the ceiling of everything durable here.

Next: scripts/benchmark/batches.py
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmark.figures import RATE, quantiles

BODY = bytes(range(256)) * 4
"""A message of every subject."""


def rate(folder: Path, group: int, messages: int) -> dict[str, float]:
    """Groups of messages written and synced one after the other, into a preallocated file."""
    groups = messages // group
    block = BODY * group
    with _file(folder, groups * len(block)) as descriptor:
        started = time.perf_counter()
        for at in range(groups):
            os.pwrite(descriptor, block, at * len(block))
            os.fdatasync(descriptor)
        return {RATE: groups * group / (time.perf_counter() - started)}


def latency(folder: Path, group: int, times: int) -> dict[str, float]:
    """How long one write and its sync take."""
    block = BODY * group
    took_s = []
    with _file(folder, times * len(block)) as descriptor:
        for at in range(times):
            started = time.perf_counter()
            os.pwrite(descriptor, block, at * len(block))
            os.fdatasync(descriptor)
            took_s.append(time.perf_counter() - started)
    return quantiles(took_s)


@contextmanager
def _file(folder: Path, size: int) -> Iterator[int]:
    path = folder / "bare"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(descriptor, 0, size)
        os.fsync(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)
        path.unlink()
