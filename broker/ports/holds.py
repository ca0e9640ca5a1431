"""Who holds parts of the log: asked before retention removes anything."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from broker.model.ids import PChannelName
from broker.model.retention.holders import (
    Hold,
    Removal,
)
from broker.model.retention.policy import LogStart


class Holds(Protocol):
    """All holders of the cluster but those that the owner of a pchannel knows itself."""

    async def of(
        self, starts: Mapping[PChannelName, LogStart]
    ) -> Mapping[PChannelName, Sequence[Hold]]:
        """The holds on these pchannels. A holder that was passed holds nothing until it moves on.

        Returns within seconds; raises Refused when the holders are not known.
        """
        ...

    async def allow(self, removals: Mapping[PChannelName, Removal]) -> Collection[PChannelName]:
        """Record what will be removed and who is passed; the pchannels where it may be removed.

        Left out are those with a hold below the removal that the caller did not know of and that is
        not in `passed`: ask again. Durable when it returns, and from then on no hold below it is
        granted. A removal of nothing only reports its holders. Returns within seconds; raises
        Refused, with nothing allowed.
        """
        ...


class NoHolds:
    """Nobody holds anything."""

    async def of(
        self, starts: Mapping[PChannelName, LogStart]
    ) -> Mapping[PChannelName, Sequence[Hold]]:
        """See Holds."""
        return {}

    async def allow(self, removals: Mapping[PChannelName, Removal]) -> Collection[PChannelName]:
        """See Holds."""
        return removals.keys()
