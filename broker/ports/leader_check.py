"""Whether this process is still the coordinator: a newer one may have taken over meanwhile."""

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
