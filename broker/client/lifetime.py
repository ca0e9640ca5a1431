"""Refuses calls on a client that is closed, or in a process forked from the client's own.

Every call passes one of two places that ask it: `Targets`, which resolves names, and `Connection`,
which makes unary calls.
"""

import os

from broker.client.errors import ClosedClient, ForkedClient


class ClientLifetime:
    """From `connect` to `aclose`, in one process."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._closed

    def check(self) -> None:
        """Raise ClosedClient or ForkedClient when the client may not be used here and now."""
        if self._closed:
            raise ClosedClient("the client is closed; connect again")
        if os.getpid() != self._pid:
            raise ForkedClient(
                f"this client was connected in process {self._pid}; connect again after the fork"
            )

    def close(self) -> None:
        """Refuse every later call. Appends that were taken in may still be sent and answered."""
        self._closed = True
