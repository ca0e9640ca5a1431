"""Whether this process has become a node yet, for whoever starts it.

Owns the answer to one question, asked once. Never asks the coordinator itself.
"""

import anyio

from broker.model.failure import Refusal, StreamingCode

IN_USE_TRIES = 8
"""A process that died with the same node id holds it for one lease; these take longer."""


class Belonging:
    """Waits for the first lease, or for a refusal that no patience would mend."""

    def __init__(self) -> None:
        self._settled = anyio.Event()
        self._refusal: Refusal | None = None
        self._in_use = 0

    async def wait(self) -> Refusal | None:
        """None once the process is a node; why it never will be. A node may wait for ever for a
        coordinator that is not there yet."""
        await self._settled.wait()
        return self._refusal

    def joined(self) -> None:
        """A lease was given."""
        self._settled.set()

    def refused(self, refusal: Refusal) -> bool:
        """Registering was refused; says whether this was news."""
        if self._settled.is_set():
            return False
        if refusal.code is StreamingCode.RESOURCE_ACQUIRED:
            self._in_use += 1
        if refusal.code is StreamingCode.INVALID_ARGUMENT or self._in_use >= IN_USE_TRIES:
            self._refusal = refusal
            self._settled.set()
            return True
        return False
