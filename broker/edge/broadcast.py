"""StreamingCoordBroadcastService, as far as it exists: an honest refusal instead of silence.

Owns no state. Next: broker/edge/gate.py
"""

from collections.abc import Mapping

from grpclib.const import Handler

from broker.edge.gate import Gate
from broker.model.failure import Refused, StreamingCode
from schemas.generated.milvus.proto import streaming as wire

SERVICE = "/milvus.proto.streaming.StreamingCoordBroadcastService/"


class BroadcastService:
    """No broadcast was ever started here, which is what both answers say."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __mapping__(self) -> Mapping[str, Handler]:
        return {
            SERVICE + "Broadcast": self._gate.unary(wire.BroadcastRequest, broadcast),
            SERVICE + "Ack": self._gate.unary(wire.BroadcastAckRequest, ack),
        }


async def broadcast(request: wire.BroadcastRequest) -> wire.BroadcastResponse:
    """INVALID_ARGUMENT for what is no broadcast, UNRECOVERABLE for what is."""
    if request.message is None or "_bh" not in request.message.properties:
        raise Refused(
            StreamingCode.INVALID_ARGUMENT, "a broadcast needs a message with property _bh"
        )
    raise Refused(
        StreamingCode.UNRECOVERABLE,
        "broadcasts are not supported yet; append to each vchannel instead",
    )


async def ack(_: wire.BroadcastAckRequest) -> wire.BroadcastAckResponse:
    """Success without effect, as for every unknown broadcast id; clients insist on it."""
    return wire.BroadcastAckResponse()
