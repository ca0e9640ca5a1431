"""Whether this process is the coordinator still: another one may have come while it was stopped."""

from typing import Protocol


class LeaderCheck(Protocol):
    """May be asked by several at once, and cancelled."""

    async def leads(self) -> bool:
        """Whether no newer coordinator had come at the moment this was asked; looks it up each
        time. MetaError when nobody can say."""
        ...


class NeverLeader:
    """Of a process that is no coordinator."""

    async def leads(self) -> bool:
        """See LeaderCheck."""
        return False
