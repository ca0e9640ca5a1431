"""Makes the broadcast of a request once its resource keys are held."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from broker.model.broadcast import Broadcast
from broker.model.failure import invalid_argument
from broker.model.master.ddl import PlannedRequest


class BroadcastPlanner(Protocol):
    """One for each incarnation of the Broadcaster. Plans run one after another."""

    def restore(self, recorded: Iterable[Broadcast]) -> None:
        """Broadcasts that were recorded before, unfinished ones with their body; called once."""
        ...

    async def read_ahead(self, requests: Sequence[PlannedRequest]) -> None:
        """Read what the plans of these need at once, for until `forget`. MetaError.

        Called while the keys of all of them are held.
        """
        ...

    def forget(self) -> None:
        """What was read ahead may be out of date from here on."""
        ...

    async def plan(self, request: PlannedRequest) -> Broadcast:
        """The broadcast, with the request key and fingerprint of the request.

        Called while the keys are held; returns within a bounded time. Nothing has changed when it
        raises Refused, or MetaError.
        """
        ...

    def finished(self, request_key: str) -> None:
        """The broadcast of this request was applied, or was not recorded."""
        ...


class NoPlanner:
    """Refuses every request: for a broadcaster whose process has no meta table."""

    def restore(self, recorded: Iterable[Broadcast]) -> None:
        """See BroadcastPlanner."""

    async def read_ahead(self, requests: Sequence[PlannedRequest]) -> None:
        """See BroadcastPlanner."""

    def forget(self) -> None:
        """See BroadcastPlanner."""

    async def plan(self, request: PlannedRequest) -> Broadcast:
        """See BroadcastPlanner."""
        raise invalid_argument(f"{type(request.ddl).__name__} is not served here")

    def finished(self, request_key: str) -> None:
        """See BroadcastPlanner."""
