"""Unpacks bodies to check them, large ones in a thread: a body of a KiB may have 8 MiB inside.

Why a thread of its own: a flood of such bodies must not take those that files are read in.
"""

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple, Unpack

import anyio
from anyio.to_thread import run_sync

ON_THE_LOOP_BYTES_MAX: Final = 256 * 1024
"""Unpacked; takes about 0.1 ms."""
THREADS: Final = 1
"""It unpacks gigabytes a second, and more would take the processors of everybody else."""

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class Unpacking:
    """One for a server."""

    def __init__(self) -> None:
        self._threads = anyio.CapacityLimiter(THREADS)

    async def run(self, size: int, check: Callable[[Unpack[Ts]], R], *given: *Ts) -> R:
        """What `check` returns for a body of `size` bytes once it is unpacked."""
        if size <= ON_THE_LOOP_BYTES_MAX:
            return check(*given)
        return await run_sync(check, *given, limiter=self._threads)
