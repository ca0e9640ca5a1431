"""Clashes: changes by clients of Milvus that did not fit the table of the master."""

from collections.abc import AsyncIterator, Iterable
from typing import Final

from broker.client.cluster.service import ServiceCalls
from broker.client.master.change_calls import ChangeCalls
from broker.model.master.clash import Clash
from schemas.generated.tidemark import v1

CLEARED_A_CALL: Final = 50


class ClashCalls:
    """Part of `log.master`. Errors that may pass are retried until the deadline, then raised."""

    def __init__(self, calls: ServiceCalls, *, deadline_s: float) -> None:
        self._changes = ChangeCalls(calls, deadline_s=deadline_s)

    async def list_clashes(self) -> AsyncIterator[Clash]:
        """Every clash by id, fetched in pages. `log.admin.health()` has the first hundred."""
        after, more = "", True
        while more:
            request = v1.ListClashesRequest(after=after)
            page = await self._changes.read("ListClashes", request, v1.ListClashesResponse)
            for it in page.clashes:
                yield Clash(it.id, it.cause)
                after = it.id
            more = page.more and bool(page.clashes)

    async def clear_clashes(self, ids: Iterable[str]) -> list[str]:
        """Stop listing these; durable when it returns. Returns those that were not listed.

        Nothing else changes: the broadcast stays on the control channel, and is not applied later.
        """
        given, unknown = list(ids), list[str]()
        for first in range(0, len(given), CLEARED_A_CALL):
            request = v1.ClearClashesRequest(ids=given[first : first + CLEARED_A_CALL])
            answer = await self._changes.read("ClearClashes", request, v1.ClearClashesResponse)
            unknown += answer.unknown_ids
        return unknown
