"""Calls that take turns: a server answers few at once sooner than all of them together.

For each new stream of a connection, both ends look at all that are open. So ten thousand calls at
once would each wait for all others, until the deadline of all is over.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from broker.client.errors import ResourceAcquired
from broker.model.failure import StreamingCode

AT_ONCE: Final = 16
WAITING_MAX: Final = 16_384

T = TypeVar("T")


class Turns:
    """Carries out `at_once` calls at a time, in the order in which they came."""

    def __init__(self, at_once: int = AT_ONCE, waiting_max: int = WAITING_MAX) -> None:
        self._turns = anyio.Semaphore(at_once)
        self._waiting = 0
        self._waiting_max = waiting_max

    async def take(self, call: Callable[[], Awaitable[T]]) -> T:
        """What the call returns or raises; a deadline of its own begins with its turn.

        Raises ResourceAcquired at once when `waiting_max` calls wait: nothing was sent then.
        """
        if self._waiting >= self._waiting_max:
            raise ResourceAcquired(
                f"{self._waiting_max} calls about groups wait for their turn in this client, the"
                " limit; nothing was sent: retry when some of them are answered",
                StreamingCode.RESOURCE_ACQUIRED,
            )
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            return await call()
        finally:
            self._turns.release()
