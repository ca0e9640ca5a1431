"""StreamingNodeManagerService: a coordinator opens, closes and polls pchannels of this node.

The rules of terms are the Directory's.
"""

from collections.abc import Mapping

from grpclib.const import Handler

from broker.edge.rpc.middleware import Middleware
from broker.edge.rpc.proxies import Proxy
from broker.edge.rpc.request_metadata import pchannel
from broker.model.channel import AccessMode
from broker.model.failure import Refusal, Refused
from broker.node.directory_messages import (
    AssignChannel,
    ChannelStatus,
    CollectStatus,
    RemoveChannel,
)
from schemas.generated.milvus.proto import streaming as wire

SERVICE = "/milvus.proto.streaming.StreamingNodeManagerService/"
OPERATION_S = 300.0
"""Long enough to recover a large log: an attempt that is cut short starts from the beginning."""


class NodeManagerService:
    """Assign, Remove, CollectStatus of one node."""

    def __init__(self, middleware: Middleware, directory: Proxy) -> None:
        self._middleware = middleware
        self._directory = directory

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Assign": middleware.unary(
                wire.StreamingNodeManagerAssignRequest, self.assign
            ),
            SERVICE + "Remove": middleware.unary(
                wire.StreamingNodeManagerRemoveRequest, self.remove
            ),
            SERVICE + "CollectStatus": middleware.unary(
                wire.StreamingNodeManagerCollectStatusRequest, self.collect_status
            ),
        }

    async def assign(
        self, request: wire.StreamingNodeManagerAssignRequest
    ) -> wire.StreamingNodeManagerAssignResponse:
        """Open the channel; answers once it serves at the term."""
        channel = pchannel(request.pchannel)
        _raise(await self._directory.ask(AssignChannel(channel), deadline_s=OPERATION_S))
        return wire.StreamingNodeManagerAssignResponse()

    async def remove(
        self, request: wire.StreamingNodeManagerRemoveRequest
    ) -> wire.StreamingNodeManagerRemoveResponse:
        """Close the channel; answers once it is released."""
        channel = pchannel(request.pchannel)
        message = RemoveChannel(channel.name, channel.term)
        _raise(await self._directory.ask(message, deadline_s=OPERATION_S))
        return wire.StreamingNodeManagerRemoveResponse()

    async def collect_status(
        self, _: wire.StreamingNodeManagerCollectStatusRequest
    ) -> wire.StreamingNodeManagerCollectStatusResponse:
        """Every channel that this node serves, with its ticks."""
        status = await self._directory.demand(CollectStatus())
        return wire.StreamingNodeManagerCollectStatusResponse(
            metrics=wire.StreamingNodeMetrics(wals=[_metrics(entry) for entry in status.channels])
        )


def _metrics(status: ChannelStatus) -> wire.StreamingNodeWalMetrics:
    channel = status.channel
    info = wire.PChannelInfo(
        name=channel.name,
        term=channel.term,
        access_mode=wire.PChannelAccessMode(int(channel.access)),
    )
    if channel.access is AccessMode.READ_ONLY:
        return wire.StreamingNodeWalMetrics(info=info, ro=wire.StreamingNodeRowalMetrics())
    ticks = wire.StreamingNodeRwwalMetrics(
        mvcc_time_tick=status.mvcc_tick, recovery_time_tick=status.recovery_tick
    )
    return wire.StreamingNodeWalMetrics(info=info, rw=ticks)


def _raise(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise Refused(refusal.code, refusal.cause)
