"""StreamingNodeHandlerService: Produce, Consume, and the replication checkpoint."""

from collections.abc import Mapping

from grpclib.const import Handler

from broker.edge.milvus.consume import ConsumerStreams
from broker.edge.milvus.produce import serve_produce
from broker.edge.milvus.tick_frames import TickFrames
from broker.edge.rpc.middleware import Call, Middleware
from broker.edge.rpc.proxies import Proxy
from broker.edge.rpc.request_metadata import pchannel
from broker.model.failure import Refused, StreamingCode
from broker.model.ids import NodeId
from broker.node.directory_messages import Locate
from schemas.generated.milvus.proto import streaming as wire

SERVICE = "/milvus.proto.streaming.StreamingNodeHandlerService/"


class HandlerService:
    """Produce, Consume, GetReplicateCheckpoint of one node."""

    def __init__(
        self, middleware: Middleware, directory: Proxy, wal_name: str, node_id: NodeId
    ) -> None:
        self._middleware = middleware
        self._directory = directory
        self._wal_name = wal_name
        self._consumers = ConsumerStreams(
            directory, TickFrames(node_id), wal_name, middleware.limits
        )

    def __mapping__(self) -> Mapping[str, Handler]:
        middleware = self._middleware
        return {
            SERVICE + "Produce": middleware.streaming(self._produce),
            SERVICE + "Consume": middleware.streaming(self._consumers.serve),
            SERVICE + "GetReplicateCheckpoint": middleware.unary(
                wire.GetReplicateCheckpointRequest, self.replicate_checkpoint
            ),
        }

    async def replicate_checkpoint(
        self, request: wire.GetReplicateCheckpointRequest
    ) -> wire.GetReplicateCheckpointResponse:
        """Refuse with REPLICATE_VIOLATION: only a replica has a checkpoint."""
        channel = pchannel(request.pchannel)
        await self._directory.demand(Locate(channel.name, channel.term))
        raise Refused(
            StreamingCode.REPLICATE_VIOLATION,
            f"{channel.name}: this cluster is not a replica, so it has no replication checkpoint",
        )

    async def _produce(self, call: Call) -> None:
        await serve_produce(call, self._directory, self._wal_name, self._middleware.limits)
