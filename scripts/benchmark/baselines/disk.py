"""Measures a bare loop of writes and syncs: the upper bound of every durable append."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmark.results.figures import RATE, quantiles

BODY = bytes(range(256)) * 4
"""A message of every subject."""


def rate(folder: Path, group: int, messages: int) -> dict[str, float]:
    """Write and sync groups of messages one after the other, in a preallocated file."""
    groups = messages // group
    block = BODY * group
    with _file(folder, groups * len(block)) as descriptor:
        started = time.perf_counter()
        for at in range(groups):
            os.pwrite(descriptor, block, at * len(block))
            os.fdatasync(descriptor)
        return {RATE: groups * group / (time.perf_counter() - started)}


def latency(folder: Path, group: int, times: int) -> dict[str, float]:
    """Measure one write with its sync, again and again."""
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
