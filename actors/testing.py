"""Runs async code under a seed: the same seed gives the same order of events."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from actors.clock import Alarm
from actors.seeded_loop import Deadlock, SeededLoop

T = TypeVar("T")
EPOCH_MS = 1_700_000_000_000

__all__ = ["EPOCH_MS", "Deadlock", "VirtualClock", "run_seeded"]


class VirtualClock:
    """The seeded loop's time as a `Clock`; the wall starts at EPOCH_MS and can be set wrong."""

    def __init__(self) -> None:
        self._wall_shift_ms = 0

    def monotonic_s(self) -> float:
        """See Clock."""
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        """See Clock."""
        return EPOCH_MS + self._wall_shift_ms + int(self.monotonic_s() * 1000)

    def shift_wall(self, by_ms: int) -> None:
        """Make the wall clock jump, forwards or backwards; monotonic time is not affected."""
        self._wall_shift_ms += by_ms

    async def sleep(self, duration_s: float) -> None:
        """See Clock."""
        await asyncio.sleep(duration_s)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Alarm:
        """See Clock."""
        return asyncio.get_running_loop().call_later(delay_s, callback)


def run_seeded(
    seed: int,
    main: Callable[[], Coroutine[Any, Any, T]],
    *,
    virtual_limit_s: float = 3600.0,
) -> T:
    """Run `main()` on a loop of its own where the seed picks among ready callbacks.

    Returns its result. Time is virtual: waiting costs nothing. Raises Deadlock if no callback can
    ever run again, or after `virtual_limit_s`; raises errors that a loop would only log.
    Threads and sockets do not work here.
    """
    loop: SeededLoop | None = None

    def make() -> SeededLoop:
        nonlocal loop
        loop = SeededLoop(seed, virtual_limit_s)
        return loop

    with asyncio.Runner(loop_factory=make) as runner:
        result = runner.run(main())
    assert loop is not None
    if loop.errors:
        raise loop.errors[0]
    return result
