"""StreamingCoordBroadcastService: one message for many vchannels, and the acks of its copies.

A call without an idempotency key gets a name of its own. When the Broadcaster dies during the call,
the request is repeated under that name, so it does not become a second broadcast.
"""

from collections.abc import Mapping
from typing import Final
from uuid import uuid4

import anyio
from grpclib.const import Handler

from broker.coordinator.assignment.messages import ListPChannels, NextAssignment
from broker.coordinator.broadcast.messages import StartBroadcast
from broker.core.cluster.assignment import BROADCAST_VERSION
from broker.edge.milvus.broadcast_request import BroadcastLimits, ack_request, broadcast_request
from broker.edge.milvus.produce_results import append_result
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.model.channel import AssignmentVersion
from broker.model.failure import Refused, StreamingCode
from schemas.generated.milvus.proto import streaming as wire

SERVICE = "/milvus.proto.streaming.StreamingCoordBroadcastService/"
BROADCAST_S: Final = 3600.0
"""For callers without a deadline of their own, which wait until their resource keys are free."""


class BroadcastService:
    """Broadcast, Ack."""

    def __init__(self, middleware: Middleware, broadcaster: Proxy, assigner: Proxy) -> None:
        self._middleware = middleware
        self._broadcaster = broadcaster
        self._assigner = assigner
        self._enabled = False

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Broadcast": middleware.unary(
                wire.BroadcastRequest, self.broadcast, interruptible=True
            ),
            SERVICE + "Ack": middleware.unary(wire.BroadcastAckRequest, self.ack),
        }

    async def broadcast(self, request: wire.BroadcastRequest) -> wire.BroadcastResponse:
        """Start a broadcast; answers once it took effect. Refused as `StartBroadcast` refuses.

        Waits while the streaming version of the cluster is below BROADCAST_VERSION.
        """
        await self._until_enabled()
        known = await self._assigner.ask(ListPChannels())
        # Asked for each call: a vchannel on an unknown pchannel could never be appended.
        limits = BroadcastLimits(
            self._middleware.limits.message_bytes_max, {it.name for it in known}
        )
        broadcast = broadcast_request(request.message, limits, f"call:{uuid4().hex}")
        done = await self._broadcaster.ask(StartBroadcast(broadcast), deadline_s=BROADCAST_S)
        return wire.BroadcastResponse(
            broadcast_id=done.id,
            results={name: append_result(landed) for name, landed in done.results.items()},
        )

    async def _until_enabled(self) -> None:
        """Return once the cluster has a version with broadcasts; the version never decreases."""
        seen: AssignmentVersion | None = None
        with anyio.move_on_after(BROADCAST_S):
            while not self._enabled:
                table = await self._assigner.ask(NextAssignment(seen))
                # None: no newer table for about a second.
                if table is not None:
                    seen = table.version
                    self._enabled = table.streaming_version >= BROADCAST_VERSION
            return
        raise Refused(
            StreamingCode.INNER,
            f"the cluster is below streaming version {BROADCAST_VERSION}, which broadcasts need;"
            " nothing was recorded. Raise it with `tidemark streaming enable`",
        )

    async def ack(self, request: wire.BroadcastAckRequest) -> wire.BroadcastAckResponse:
        """Record an ack; repeats, and acks of finished broadcasts, succeed. See AckBroadcast."""
        ack = ack_request(request.message, request.broadcast_id, request.vchannel)
        await self._broadcaster.ask(ack)
        return wire.BroadcastAckResponse()
