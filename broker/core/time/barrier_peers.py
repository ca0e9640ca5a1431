"""Who takes part in a barrier, and who has not been heard of for too long.

Owns the leases: a peer that stays silent for half of its lease is named, and past all of it it is
to be removed, because one dead peer must not hold up the others for ever. Never reads a clock, and
never removes anybody by itself. Next: broker/core/time/barrier.py
"""

from dataclasses import dataclass, replace

SILENT_SHARE = 0.5
"""Of the lease. Who renews it three times as often as needed is late after one lost renewal."""


@dataclass(frozen=True, slots=True)
class PeerLease:
    """`id` belongs to one joining: a peer that joined again has another."""

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
    """The members of one barrier, in the order of joining."""

    def __init__(self) -> None:
        self._leases: dict[str, PeerLease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, name: str) -> bool:
        return name in self._leases

    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._leases)

    def join(self, name: str, lease: PeerLease) -> None:
        """From now on a member, under this lease only."""
        self._leases[name] = lease

    def hear(self, name: str, now_s: float) -> None:
        """A member has said something: its lease begins again."""
        self._leases[name] = replace(self._leases[name], heard_s=now_s)

    def leave(self, name: str) -> None:
        """No member any more; nothing happens when it is none."""
        self._leases.pop(name, None)

    def lease_of(self, name: str) -> PeerLease | None:
        """The lease of a member."""
        return self._leases.get(name)

    def silent(self, now_s: float) -> tuple[str, ...]:
        """Members that are late, those to be removed included."""
        return tuple([name for name, lease in self._leases.items() if lease.silent(now_s)])

    def overdue(self, now_s: float) -> tuple[str, ...]:
        """Members to be removed."""
        return tuple([name for name, lease in self._leases.items() if lease.over(now_s)])
