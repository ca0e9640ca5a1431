"""Reads a connection no faster than the work that its peer causes is paid for."""

import asyncio
import math
from collections.abc import Callable

from broker.core.pressure.token_bucket import TokenBucket
from broker.transport.frame_costs import FRAMES_A_TURN, UNITS_A_SECOND, UNITS_AT_ONCE


class PeerPace:
    """Of one connection. `receive` gets what was read before a pause, after it."""

    def __init__(self, transport: asyncio.Transport, receive: Callable[[bytes], None]) -> None:
        self._transport, self._receive = transport, receive
        self._loop = asyncio.get_running_loop()
        self._bucket = TokenBucket(UNITS_A_SECOND, UNITS_AT_ONCE, self._loop.time())
        self._turn = 0
        self._goes_on: asyncio.TimerHandle | None = None
        # At most what was being read when the pause began, and one read more.
        self._kept: list[bytes] = []

    def pay(self, units: int, frames: int = 0) -> bool:
        """Pay for what was done; False when the peer has to wait before more is done for it."""
        now_s = self._loop.time()
        self._bucket.take(units, now_s, math.inf)
        self._turn += frames
        return self._turn < FRAMES_A_TURN and self._bucket.wait_s(now_s) <= 0

    def keeps(self, data: bytes) -> bool:
        """Whether there is a pause, which keeps the data for later."""
        if self._goes_on is None:
            self._turn = 0
            return False
        self._kept.append(data)
        return True

    def pause(self, data: bytes) -> None:
        """Read nothing until all is paid for, and then receive `data` before anything else."""
        if self._transport.is_closing():
            return
        self._kept.append(data)
        self._transport.pause_reading()
        wait_s = self._bucket.wait_s(self._loop.time())
        self._goes_on = self._loop.call_later(wait_s, self._go_on)

    def stop(self) -> None:
        """The connection is lost: what was kept is of no use."""
        if self._goes_on is not None:
            self._goes_on.cancel()
        self._kept.clear()

    def _go_on(self) -> None:
        self._goes_on = None
        if self._transport.is_closing():
            return
        data = b"".join(self._kept)
        self._kept.clear()
        self._transport.resume_reading()
        self._receive(data)
