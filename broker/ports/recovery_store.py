"""Where a node keeps what it remembers of its pchannels over a restart.

Implemented by `broker/meta/stored_recovery.py` over any metadata store.
"""

from typing import Protocol

from broker.model.ids import PChannelName, Term
from broker.model.snapshot import Snapshot, SnapshotChange


class Superseded(Exception):
    """Somebody newer has claimed the pchannel's snapshot. Final for this claim."""

    def __init__(self, channel: str, term: int, newer: int) -> None:
        super().__init__(f"{channel}: the snapshot of term {term} was claimed at term {newer}")
        self.channel, self.term, self.newer = channel, term, newer


class SnapshotClaim(Protocol):
    """The right to save one pchannel's snapshots, until somebody newer claims it."""

    @property
    def snapshot(self) -> Snapshot:
        """What was saved last, as of the claim.

        Whatever of it cannot be read is left out, and then there is no checkpoint: what is missing
        has to be found in the log again.
        """
        ...

    @property
    def damage(self) -> tuple[str, ...]:
        """What was left out, and why, one text for each; usually empty."""
        ...

    async def save(self, change: SnapshotChange) -> None:
        """Store it: objects first, the checkpoint last; all is durable when the call returns.

        Every write holds the term, and is refused once a newer one was there: Superseded, and
        nothing newer is overwritten. MetaError: save the same change again; until that succeeds
        some of it may be stored already. One call at a time.
        """
        ...


class RecoveryStore(Protocol):
    """Safe to use from several processes at once."""

    async def claim(self, channel: PChannelName, term: Term) -> SnapshotClaim:
        """Take the snapshot over at `term`; every earlier claim, also at this term, is void.

        Raises Superseded when a newer term has claimed it, MetaError when the store is away. What
        is stored and cannot be read is no error.
        """
        ...
