"""tidemark.v1.TimeSync, holds of broadcasts: they wait while a client cuts their channels.

Who took a hold releases it, nobody else. A hold counts only if the coordinator that granted it
still leads: broadcasts do not wait for the cut lock of one that was deposed.
"""

from collections.abc import Mapping

import anyio
from grpclib.const import Handler

from broker.coordinator.cuts.cut_lock import HELD_BACK_S
from broker.coordinator.cuts.messages import ReleaseHold, TakeHold
from broker.core.cluster.hold_takers import HoldTakers
from broker.edge.rpc.access.access import CALLER
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.model.failure import Refused, StreamingCode, invalid_argument
from broker.node.queries.cut_channels import CHANNELS_MAX
from broker.ports.leader_check import LeaderCheck
from broker.ports.meta import MetaError
from schemas.generated.tidemark import v1

SERVICE = "/tidemark.v1.TimeSync/"


class BroadcastHoldsService:
    """HoldBroadcasts, ReleaseBroadcasts."""

    def __init__(self, middleware: Middleware, cut_lock: Proxy, lead: LeaderCheck) -> None:
        self._middleware = middleware
        self._cut_lock = cut_lock
        self._lead = lead
        self._takers = HoldTakers(anyio.current_time, HELD_BACK_S)

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "HoldBroadcasts": middleware.unary(
                # It waits while broadcasts hold the lock, so a drain must interrupt it.
                v1.HoldBroadcastsRequest,
                self.hold,
                interruptible=True,
            ),
            SERVICE + "ReleaseBroadcasts": middleware.unary(
                v1.ReleaseBroadcastsRequest, self.release
            ),
        }

    async def hold(self, request: v1.HoldBroadcastsRequest) -> v1.HoldBroadcastsResponse:
        """Hold broadcasts. INVALID_ARGUMENT for no channel, too many, or an empty name."""
        channels = tuple(request.channels)
        if not 0 < len(channels) <= CHANNELS_MAX or not all(channels):
            raise invalid_argument(
                f"a hold names 1 to {CHANNELS_MAX} channels, none of them empty;"
                f" this one names {len(channels)}"
            )
        with self._takers.taking(CALLER.get()) as hold:
            held = await self._cut_lock.ask(TakeHold(channels, request.exclusive))
            self._takers.granted(hold, held.id, held.lease_s)
        return v1.HoldBroadcastsResponse(hold_id=held.id, lease_ms=round(held.lease_s * 1000))

    async def release(self, request: v1.ReleaseBroadcastsRequest) -> v1.ReleaseBroadcastsResponse:
        """Release a hold; says whether it lasted. INNER when metadata cannot be read.

        One of somebody else is not told apart from one that is over.
        """
        if not self._takers.released(request.hold_id, CALLER.get()):
            return v1.ReleaseBroadcastsResponse(lasted=False)
        lasted = await self._cut_lock.ask(ReleaseHold(request.hold_id))
        try:
            # Checked after the release: a coordinator that leads now has led during the whole hold.
            return v1.ReleaseBroadcastsResponse(lasted=lasted and await self._lead.leads())
        except MetaError as error:
            raise Refused(StreamingCode.INNER, str(error)) from error
