"""tidemark.v1.Master: timestamps, ids, and the channel of the master's changes."""

from collections.abc import Mapping
from typing import Final

from grpclib.const import Handler

from broker.coordinator.assignment.messages import NextAssignment
from broker.coordinator.time.messages import Reserve
from broker.core.naming import control_channel
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxies
from broker.master.ids.messages import TakeIds
from broker.model.failure import Refused, StreamingCode
from schemas.allocations import allocated
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.Master/"

TIMESTAMP_AHEAD_MS_MAX: Final = 1_000
"""How far callers may move time ahead of the clock, by taking timestamps in large batches."""


class AllocationService:
    """AllocTimestamp, AllocID, GetDdChannel."""

    def __init__(self, middleware: Middleware, proxies: Proxies) -> None:
        self._middleware = middleware
        self._proxies = proxies

    def __mapping__(self) -> Mapping[str, Handler]:
        unary = self._middleware.unary
        return {
            SERVICE + "AllocTimestamp": unary(v1.AllocTimestampRequest, self.alloc_timestamp),
            SERVICE + "AllocID": unary(v1.AllocIdRequest, self.alloc_id),
            SERVICE + "GetDdChannel": unary(v1.GetDdChannelRequest, self.get_dd_channel),
        }

    async def alloc_timestamp(self, request: v1.AllocTimestampRequest) -> bytes:
        """INVALID_ARGUMENT for a count out of bounds; INNER while time is ahead of the clock."""
        reserve = Reserve(request.count, TIMESTAMP_AHEAD_MS_MAX)
        ticks = await self._proxies.oracle.ask(reserve)
        return allocated(ticks.first, ticks.count)

    async def alloc_id(self, request: v1.AllocIdRequest) -> bytes:
        """INVALID_ARGUMENT for a count out of bounds; UNRECOVERABLE when all ids are used up."""
        ids = await self._proxies.ids.ask(TakeIds(request.count))
        return allocated(ids.first, ids.count)

    async def get_dd_channel(self, _: v1.GetDdChannelRequest) -> v1.GetDdChannelResponse:
        """The control channel."""
        table = await self._proxies.assigner.ask(NextAssignment())
        if table is None:
            cause = "the coordinator has just started and does not know its channels yet; try again"
            raise Refused(StreamingCode.INNER, cause)
        return v1.GetDdChannelResponse(channel_name=control_channel(table.control_host))
