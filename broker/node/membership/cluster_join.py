"""Tells the starting process whether it has joined the cluster, and how long to keep trying."""

import anyio

from broker.model.failure import Refusal, StreamingCode

IN_USE_LEASES = 1.5
"""Wait so long for a node id in use: a process that died with it holds it for one lease."""


class ClusterJoin:
    """Waits for the first lease, or for a refusal that retries cannot fix.

    `lease_s`: the cluster's lease. `wait_s`: how long to try to reach the coordinator.
    """

    def __init__(self, lease_s: float, wait_s: float) -> None:
        self._in_use_s = lease_s * IN_USE_LEASES
        self._wait_s = wait_s
        self._settled = anyio.Event()
        self._refusal: Refusal | None = None
        self._logged: StreamingCode | None = None
        self.coordinator = ""
        """Where clients reach the coordinator, as its newest lease says; "" when none does."""
        self.session = 0
        """Of the newest lease; larger than any that a process had which was this node before."""

    async def wait(self) -> Refusal | None:
        """None once the process has joined, or why it never will."""
        await self._settled.wait()
        return self._refusal

    @property
    def joined_once(self) -> bool:
        """Whether a lease was ever granted; from then on the process retries for ever."""
        return self._settled.is_set() and self._refusal is None

    def joined(self, coordinator: str, session: int) -> None:
        """Record a lease: the address of the coordinator that it names, and its session."""
        self.coordinator, self.session = coordinator, session
        self._settled.set()

    def refused(self, refusal: Refusal, waited_s: float) -> bool:
        """Record a refusal, `waited_s` after the first try; return whether to log it."""
        if self._settled.is_set():
            return False
        if self._is_final(refusal, waited_s):
            self._refusal = refusal
            self._settled.set()
        news = refusal.code is not self._logged
        self._logged = refusal.code
        return news

    def _is_final(self, refusal: Refusal, waited_s: float) -> bool:
        match refusal.code:
            case StreamingCode.INVALID_ARGUMENT:
                # A wrong setting, which no retry can fix.
                return True
            case StreamingCode.RESOURCE_ACQUIRED:
                return waited_s >= self._in_use_s
            case _:
                return waited_s >= self._wait_s
