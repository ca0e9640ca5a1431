"""The longest lease that any coordinator of the cluster has granted and that may still run.

Recorded before a longer lease is granted than ever before; shortened when no longer one can run.
Why: a node relies on the lease it was granted, whatever its next coordinator grants. If its
channels were reassigned earlier, no append would be lost, because the log fences it; but it would
continue to announce closed ticks, which are not written anywhere.
"""

from broker.coordinator.records import LEASE_KEY, decode_number, encode_number
from broker.ports.meta import MetaStore


class GrantedLeases:
    """For a coordinator that grants leases of `lease_s` seconds. Every call may raise MetaError."""

    def __init__(self, store: MetaStore, lease_s: float) -> None:
        self._store = store
        self._own_ms = round(lease_s * 1000)
        self._recorded_ms = 0
        self._until_s = 0.0

    async def inherit(self, now_s: float) -> None:
        """Read what was granted before; after this call leases may be granted."""
        entry = await self._store.get(LEASE_KEY)
        self._recorded_ms = 0 if entry is None else decode_number(LEASE_KEY, entry.value)
        # Before the first grant: a coordinator after this one must know how long to wait.
        if self._recorded_ms < self._own_ms:
            await self._record()
        # A whole lease from now: the earlier coordinator may have granted one just before its end.
        self._until_s = now_s + self._recorded_ms / 1000

    def until_s(self, now_s: float) -> float:
        """When every lease granted until now has ended, by this or an earlier coordinator."""
        return max(now_s + self._own_ms / 1000, self._until_s)

    async def shorten(self, now_s: float) -> None:
        """When longer leases have ended, the next coordinator need not wait for them."""
        if self._recorded_ms > self._own_ms and now_s >= self._until_s:
            await self._record()

    async def _record(self) -> None:
        await self._store.write({LEASE_KEY: encode_number(self._own_ms)})
        self._recorded_ms = self._own_ms
