"""Where a node saves snapshots of its pchannels.

Implemented by `broker/meta/stored_recovery.py` over any metadata store.
"""

from typing import Protocol

from broker.model.ids import PChannelName, Term
from broker.model.snapshot import Snapshot, SnapshotChange


class Superseded(Exception):
    """A newer term has claimed the pchannel's snapshot. Final for this claim."""

    def __init__(self, channel: str, term: int, newer: int) -> None:
        super().__init__(f"{channel}: the snapshot of term {term} was claimed at term {newer}")
        self.channel, self.term, self.newer = channel, term, newer


class SnapshotClaim(Protocol):
    """The right to save one pchannel's snapshots, until a newer term claims it."""

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot as of the claim.

        Parts that cannot be read are left out, and then there is no checkpoint: the missing parts
        have to be replayed from the log.
        """
        ...

    @property
    def damage(self) -> tuple[str, ...]:
        """The parts that were left out and why, one text for each; usually empty."""
        ...

    async def save(self, change: SnapshotChange) -> None:
        """Save the change, objects first and the checkpoint last; durable when the call returns.

        Every write is fenced by the term: Superseded once a newer term has claimed the snapshot,
        and nothing newer is overwritten. After MetaError save the same change again; until then
        part of it may be stored. One call at a time.
        """
        ...


class RecoveryStore(Protocol):
    """Safe to use from several processes at once."""

    async def claim(self, channel: PChannelName, term: Term) -> SnapshotClaim:
        """Take over the snapshot at `term`; earlier claims, also those at this term, become void.

        Raises Superseded if a newer term has claimed it, MetaError if the store does not answer.
        Unreadable contents are no error: see `SnapshotClaim.damage`.
        """
        ...
