"""Refuses calls on a client that is closed, or in a process forked from the client's own.

Every call passes one of two places that ask it: `Targets`, which resolves names, and `Connection`,
which makes unary calls. While the client is being closed, the first refuses new work and the second
lets work that has begun make its remaining calls.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from broker.client.errors import ClosedClient, ForkedClient


class ClientLifetime:
    """From `connect` to `aclose`, in one process."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._closing = self._closed = False
        self._busy = 0
        self._idle: anyio.Event | None = None

    @property
    def closing(self) -> bool:
        """Whether `aclose` was called."""
        return self._closing

    def check(self) -> None:
        """Raise ClosedClient or ForkedClient when no call may be made here and now."""
        if self._closed:
            raise ClosedClient("the client is closed; connect again")
        if os.getpid() != self._pid:
            raise ForkedClient(
                f"this client was connected in process {self._pid}; connect again after the fork"
            )

    def check_new(self) -> None:
        """The same when nothing new may be begun."""
        if self._closing:
            raise ClosedClient("the client is closed; connect again")
        self.check()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Work that a closing client waits for, as long as its time allows."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy and self._idle is not None:
                self._idle.set()

    async def until_idle(self) -> None:
        """Wait until no such work is left."""
        while self._busy:
            self._idle = anyio.Event()
            await self._idle.wait()

    def begin_closing(self) -> None:
        """Refuse new work. Appends that were taken in may still be sent and answered."""
        self._closing = True

    def close(self) -> None:
        """Refuse every later call."""
        self._closing = self._closed = True
