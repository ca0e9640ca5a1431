"""Holds (`broker/ports/holds.py`) of the coordinator in this process."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from actors import ActorError, Ref, Request
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import PChannelName
from broker.model.retention.holders import (
    Hold,
    Removal,
)
from broker.model.retention.policy import LogStart
from broker.timesync.messages import AllowRemovals, FindHolds

ANSWER_S = 5.0
T = TypeVar("T")


class AskedHolds:
    """Asks the current incarnation of the Cursors."""

    def __init__(self, find: Callable[[str], Ref[Any]], cursors_path: str) -> None:
        self._find = find
        self._path = cursors_path

    async def of(
        self, starts: Mapping[PChannelName, LogStart]
    ) -> Mapping[PChannelName, Sequence[Hold]]:
        """See Holds."""
        return await self._ask(FindHolds(starts))

    async def allow(self, removals: Mapping[PChannelName, Removal]) -> Collection[PChannelName]:
        """See Holds."""
        return await self._ask(AllowRemovals(removals))

    async def _ask(self, request: Request[T]) -> T:
        try:
            return await self._find(self._path).ask(request, deadline_s=ANSWER_S)
        except ActorError as error:
            raise Refused(StreamingCode.INNER, f"the holders are not known: {error}") from error
