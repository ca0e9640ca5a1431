"""StreamingNodeHandlerService: the two hot streams and the replication checkpoint.

Owns only the wiring of the method paths.
"""

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
    """What producers and consumers of one node talk to."""

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
        """REPLICATE_VIOLATION: only a secondary cluster has a checkpoint, and this is none."""
        channel = pchannel(request.pchannel)
        await self._directory.demand(Locate(channel.name, channel.term))
        raise Refused(
            StreamingCode.REPLICATE_VIOLATION,
            f"{channel.name}: this cluster replicates no other, so it has no checkpoint",
        )

    async def _produce(self, call: Call) -> None:
        await serve_produce(call, self._directory, self._wal_name, self._middleware.limits)
