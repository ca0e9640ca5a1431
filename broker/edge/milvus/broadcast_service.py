"""StreamingCoordBroadcastService: one message for many vchannels, and the acks of its copies.

Owns the translation, and a name for each call that has none of its own: when the Broadcaster dies
in the middle, the call is asked again under that name, and does not become a second broadcast.
"""

from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from grpclib.const import Handler

from broker.coordinator.assignment.messages import ListPChannels
from broker.coordinator.broadcast.messages import StartBroadcast
from broker.edge.milvus.broadcast_request import BroadcastLimits, ack_request, broadcast_request
from broker.edge.milvus.produce_results import append_result
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from schemas.generated.milvus.proto import streaming as wire

SERVICE = "/milvus.proto.streaming.StreamingCoordBroadcastService/"
BROADCAST_S: Final = 3600.0
"""For callers that bring no deadline: they wait for their resource keys, however long that is."""


class BroadcastService:
    """Broadcast, Ack."""

    def __init__(self, middleware: Middleware, broadcaster: Proxy, assigner: Proxy) -> None:
        self._middleware = middleware
        self._broadcaster = broadcaster
        self._assigner = assigner

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Broadcast": middleware.unary(
                wire.BroadcastRequest, self.broadcast, interruptible=True
            ),
            SERVICE + "Ack": middleware.unary(wire.BroadcastAckRequest, self.ack),
        }

    async def broadcast(self, request: wire.BroadcastRequest) -> wire.BroadcastResponse:
        """Answered when it took effect. Refusals as `broadcast_request` and StartBroadcast say."""
        known = await self._assigner.ask(ListPChannels())
        limits = BroadcastLimits(
            self._middleware.limits.message_bytes_max, {it.name for it in known}
        )
        broadcast = broadcast_request(request.message, limits, f"call:{uuid4().hex}")
        done = await self._broadcaster.ask(StartBroadcast(broadcast), deadline_s=BROADCAST_S)
        return wire.BroadcastResponse(
            broadcast_id=done.id,
            results={name: append_result(landed) for name, landed in done.results.items()},
        )

    async def ack(self, request: wire.BroadcastAckRequest) -> wire.BroadcastAckResponse:
        """Success also for what is known already, or not any more; see AckBroadcast."""
        ack = ack_request(request.message, request.broadcast_id, request.vchannel)
        await self._broadcaster.ask(ack)
        return wire.BroadcastAckResponse()
