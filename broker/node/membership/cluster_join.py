"""Whether this process has become a node yet, for whoever starts it.

Owns the answer to one question, asked once, and how long it may take. Never asks the coordinator
itself. Next: broker/node/membership/membership.py
"""

import anyio

from broker.model.failure import Refusal, StreamingCode

IN_USE_LEASES = 1.5
"""A process that died with the same node id holds it for one lease, and no longer."""


class ClusterJoin:
    """Waits for the first lease, or for a refusal that no patience would mend.

    `lease_s`: of this cluster. `wait_s`: for a coordinator that is not there, or does not answer.
    """

    def __init__(self, lease_s: float, wait_s: float) -> None:
        self._in_use_s = lease_s * IN_USE_LEASES
        self._wait_s = wait_s
        self._settled = anyio.Event()
        self._refusal: Refusal | None = None
        self._told: StreamingCode | None = None

    async def wait(self) -> Refusal | None:
        """None once the process is a node; why it never will be."""
        await self._settled.wait()
        return self._refusal

    @property
    def joined_once(self) -> bool:
        """Whether a lease was ever given; from then on the process waits for ever."""
        return self._settled.is_set() and self._refusal is None

    def joined(self) -> None:
        """A lease was given."""
        self._settled.set()

    def refused(self, refusal: Refusal, waited_s: float) -> bool:
        """Registering was refused, so long after the first try; says whether this is news."""
        if self._settled.is_set():
            return False
        if self._is_final(refusal, waited_s):
            self._refusal = refusal
            self._settled.set()
        news = refusal.code is not self._told
        self._told = refusal.code
        return news

    def _is_final(self, refusal: Refusal, waited_s: float) -> bool:
        match refusal.code:
            case StreamingCode.INVALID_ARGUMENT:
                return True
            case StreamingCode.RESOURCE_ACQUIRED:
                return waited_s >= self._in_use_s
            case _:
                return waited_s >= self._wait_s
