"""How long a lease may last that a coordinator of this cluster has granted, also one before us.

Owns that record. It is written before a longer lease is granted than ever before, and shortened
when none of the longer ones can last any more.
Why: a node counts on the lease it was granted, whatever its next coordinator grants. Its channels
given away before, it would not lose an append, which the log's fence stops; but it would go on to
promise closed ticks, which are written nowhere.
"""

from broker.coordinator.records import LEASE_KEY, decode_number, encode_number
from broker.ports.meta import MetaStore


class GrantedLeases:
    """Of a coordinator that grants leases of `lease_s` seconds. Every call may raise MetaError."""

    def __init__(self, store: MetaStore, lease_s: float) -> None:
        self._store = store
        self._own_ms = round(lease_s * 1000)
        self._recorded_ms = 0
        self._until_s = 0.0

    async def inherit(self, now_s: float) -> None:
        """Learn what was granted before; from then on this one may grant its own."""
        entry = await self._store.get(LEASE_KEY)
        self._recorded_ms = 0 if entry is None else decode_number(LEASE_KEY, entry.value)
        if self._recorded_ms < self._own_ms:
            await self._record()
        self._until_s = now_s + self._recorded_ms / 1000

    def until_s(self, now_s: float) -> float:
        """When a node has no lease any more that was granted one now, or earlier by another."""
        return max(now_s + self._own_ms / 1000, self._until_s)

    async def shorten(self, now_s: float) -> None:
        """Once the longer ones of others are over, the next coordinator need not wait for them."""
        if self._recorded_ms > self._own_ms and now_s >= self._until_s:
            await self._record()

    async def _record(self) -> None:
        await self._store.write({LEASE_KEY: encode_number(self._own_ms)})
        self._recorded_ms = self._own_ms
