"""The peers of a barrier and their leases.

A peer that is silent for half of its lease counts as late, and for all of it as overdue: the caller
removes it, because one dead peer must not block the others for ever.
"""

from dataclasses import dataclass, replace

SILENT_SHARE = 0.5
"""Share of the lease after which a peer is late. A peer that renews three times per lease is late
after one lost renewal."""


@dataclass(frozen=True, slots=True)
class PeerLease:
    """The lease of one peer. `id` changes when the peer joins again."""

    id: int
    lease_s: float
    heard_s: float

    def silent(self, now_s: float) -> bool:
        """Whether the peer is late."""
        return now_s - self.heard_s > self.lease_s * SILENT_SHARE

    def over(self, now_s: float) -> bool:
        """Whether it is to be removed."""
        return now_s - self.heard_s > self.lease_s


class BarrierPeers:
    """The peers of one barrier, in order of joining."""

    def __init__(self) -> None:
        self._leases: dict[str, PeerLease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, name: str) -> bool:
        return name in self._leases

    @property
    def longest_lease_s(self) -> float:
        """Of all peers; 0 without any."""
        return max([it.lease_s for it in self._leases.values()], default=0.0)

    def names(self) -> tuple[str, ...]:
        """The names of all peers."""
        return tuple(self._leases)

    def join(self, name: str, lease: PeerLease) -> None:
        """Add a peer, or replace its lease."""
        self._leases[name] = lease

    def hear(self, name: str, now_s: float) -> None:
        """Renew the lease of a peer that was heard from."""
        self._leases[name] = replace(self._leases[name], heard_s=now_s)

    def leave(self, name: str) -> None:
        """Remove a peer; no-op for an unknown one."""
        self._leases.pop(name, None)

    def lease_of(self, name: str) -> PeerLease | None:
        """The lease of a peer; None if it is unknown."""
        return self._leases.get(name)

    def silent(self, now_s: float) -> tuple[str, ...]:
        """The peers that are late, overdue ones included."""
        return tuple([name for name, lease in self._leases.items() if lease.silent(now_s)])

    def overdue(self, now_s: float) -> tuple[str, ...]:
        """The peers to remove."""
        return tuple([name for name, lease in self._leases.items() if lease.over(now_s)])
