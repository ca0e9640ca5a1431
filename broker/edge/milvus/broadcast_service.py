"""StreamingCoordBroadcastService: one message for many vchannels, and the acks of its copies.

A call without an idempotency key gets a name of its own. When the Broadcaster dies during the call,
the request is repeated under that name, so it does not become a second broadcast.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from uuid import uuid4

from grpclib.const import Handler

from broker.codec.read_ddl import BadName
from broker.codec.stored_ddl import StoredDdl
from broker.coordinator.assignment.messages import ListPChannels
from broker.coordinator.broadcast.messages import PlanBroadcast, StartBroadcast
from broker.core.master.ddl_keys import ddl_keys
from broker.core.naming import pchannel_of
from broker.edge.milvus.broadcast_charges import BroadcastCharges
from broker.edge.milvus.broadcast_request import BroadcastLimits, ack_request, broadcast_request
from broker.edge.milvus.message_rights import BROADCAST, CHANGE, right_for
from broker.edge.milvus.produce_results import append_result
from broker.edge.rpc.access.access import CALLER, CURRENT
from broker.edge.rpc.broadcasts_enabled import BroadcastsEnabled
from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxies
from broker.model.broadcast import Broadcast
from broker.model.failure import invalid_argument
from broker.model.master.ddl import GivenBroadcast, PlannedRequest
from broker.model.message import ALL_PCHANNEL_TYPES
from broker.ports.headers import BadHeader
from schemas.generated.milvus.proto import streaming as wire

SERVICE = "/milvus.proto.streaming.StreamingCoordBroadcastService/"
BROADCAST_S: Final = 3600.0
"""For callers without a deadline of their own, which wait until their resource keys are free."""
DDL: Final = StoredDdl()


class BroadcastService:
    """Broadcast, Ack."""

    def __init__(self, middleware: Middleware, proxies: Proxies) -> None:
        self._middleware = middleware
        self._broadcaster = proxies.broadcaster
        self._assigner = proxies.assigner
        self._charges = BroadcastCharges(middleware.quotas, proxies.row_schemas, proxies.sizes)
        self._enabled = BroadcastsEnabled(proxies.assigner)

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
        await self._enabled.wait(BROADCAST_S)
        known = await self._assigner.ask(ListPChannels())
        # Asked for each call: a vchannel on an unknown pchannel could never be appended.
        limits = BroadcastLimits(
            self._middleware.limits.message_bytes_max, {it.name for it in known}
        )
        broadcast = broadcast_request(request.message, limits, f"call:{uuid4().hex}")
        # A change of definitions is checked against the meta table once its keys are held.
        planned = _planned(broadcast)
        await self._check_rights(broadcast, defines=planned is not None)
        if self._middleware.quotas.limited and not CURRENT.get().of_process:
            await self._charges.take(broadcast, CALLER.get())
        start = planned or StartBroadcast(broadcast)
        done = await self._broadcaster.ask(start, deadline_s=BROADCAST_S)
        return wire.BroadcastResponse(
            broadcast_id=done.id,
            results={name: append_result(landed) for name, landed in done.results.items()},
        )

    async def _check_rights(self, broadcast: Broadcast, *, defines: bool) -> None:
        """Raise Refused unless the caller may send it to each of its vchannels.

        `defines`: it changes definitions by names and ids of its own, so of any collection.
        """
        access, exclusive = CURRENT.get(), right_for(broadcast.type) is CHANGE
        if defines:
            await access.need(CHANGE, [self._middleware.access.names.cluster])
        whole = broadcast.pchannel_level or broadcast.type in ALL_PCHANNEL_TYPES
        for vchannel in broadcast.vchannels:
            await access.need_channel(BROADCAST, vchannel)
            if exclusive:
                await access.need_channel(CHANGE, pchannel_of(vchannel) if whole else vchannel)

    async def ack(self, request: wire.BroadcastAckRequest) -> wire.BroadcastAckResponse:
        """Record an ack; repeats, and acks of finished broadcasts, succeed. See AckBroadcast."""
        ack = ack_request(request.message, request.broadcast_id, request.vchannel)
        # Or a caller without any right would learn which numbers are those of broadcasts.
        await CURRENT.get().need_channel(BROADCAST, ack.vchannel)
        await self._broadcaster.ask(ack)
        return wire.BroadcastAckResponse()


def _planned(broadcast: Broadcast) -> PlanBroadcast | None:
    """The request that changes the meta table; None if it does not."""
    try:
        change = DDL.decode(broadcast.type, broadcast.body, broadcast.vchannels)
    except BadName as error:
        raise invalid_argument(str(error)) from error
    except BadHeader:
        change = None  # bytes that only the client understands
    if change is None:
        return None
    ddl = GivenBroadcast(broadcast, change)
    keys = ddl_keys(ddl)
    given = GivenBroadcast(replace(broadcast, keys=keys), change)
    return PlanBroadcast(PlannedRequest(given, keys, broadcast.request_key, broadcast.fingerprint))
