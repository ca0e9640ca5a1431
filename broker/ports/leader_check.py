"""Who is the coordinator: whether this process still is, and which others stand by for it.

That one coordinator leads is due to the metadata store. `Candidates` is a hint that makes a change
of leader fast.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class LeaderCheck(Protocol):
    """Calls may run concurrently and may be cancelled."""

    async def leads(self) -> bool:
        """Whether no newer coordinator had taken over when this was called; never cached.

        MetaError if the store does not answer.
        """
        ...


class NeverLeader:
    """For a process that is no coordinator."""

    async def leads(self) -> bool:
        """See LeaderCheck."""
        return False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that leads or stands by. `name`: no other process ever has it."""

    name: str
    address: str
    """HOST:PORT where clients and nodes reach it."""


class Candidates(Protocol):
    """The coordinators that run on one metadata store, this one among them.

    Calls may run concurrently and may be cancelled.
    """

    @property
    def own(self) -> Candidate:
        """This process, which the others see until it ends."""
        ...

    async def has_ended(self, name: str) -> bool:
        """Whether the process of this name has certainly ended, so that it can do nothing more.

        False when that is not known: then its lease decides. `name` is "" for a leader that
        recorded none, because its release knows no others beside it.
        """
        ...

    async def running(self) -> Sequence[Candidate]:
        """Those that run now, as far as is known, this process among them."""
        ...
