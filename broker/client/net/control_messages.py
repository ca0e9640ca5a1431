"""Encodes and decodes Milvus's control messages: handshakes, assignment tables, error reports.

Pure. Messages of the log are encoded and decoded in `schemas/wire.py`.
"""

from base64 import b64encode
from collections.abc import Sequence

from broker.model.channel import (
    AccessMode,
    Assignment,
    AssignmentVersion,
    NodeAssignment,
    PChannel,
)
from broker.model.failure import StreamingCode
from broker.model.ids import MessageId, NodeId, PChannelName, Term
from broker.model.position import (
    DeliverFilter,
    DeliverPolicy,
    FromAll,
    FromLatest,
    MessageTypes,
    StartAfter,
    StartFrom,
    TimeTickGt,
    TimeTickGte,
)
from schemas.encoding.frames import frame
from schemas.generated.google.protobuf import Empty
from schemas.generated.milvus.proto import common, messages, streaming
from schemas.wire import rocksmq_id_text

_SERVICE = "/milvus.proto.streaming."
PRODUCE = _SERVICE + "StreamingNodeHandlerService/Produce"
CONSUME = _SERVICE + "StreamingNodeHandlerService/Consume"
DISCOVER = _SERVICE + "StreamingCoordAssignmentService/AssignmentDiscover"

PRODUCE_CLOSE = frame(bytes(streaming.ProduceRequest(close=streaming.CloseProducerRequest())))


def producer_metadata(channel: PChannel, node: NodeId) -> dict[str, str]:
    """The metadata that opens a Produce or Append stream."""
    # Base64 by hand: gRPC encodes binary metadata only under names that end in `-bin`.
    create = streaming.CreateProducerRequest(pchannel=_pchannel_info(channel))
    return {"create-producer": b64encode(bytes(create)).decode(), "serverid": str(node)}


def consumer_metadata(channel: PChannel, node: NodeId) -> dict[str, str]:
    """The metadata that opens a Consume or Read stream."""
    create = streaming.CreateConsumerRequest(pchannel=_pchannel_info(channel))
    return {"create-consumer": b64encode(bytes(create)).decode(), "serverid": str(node)}


def create_consumer(
    vchannel: str,
    policy: DeliverPolicy,
    filters: Sequence[DeliverFilter],
    *,
    ignore_pause: bool = False,
) -> bytes:
    """The first message of a Consume stream, framed."""
    create = streaming.CreateVChannelConsumerRequest(
        vchannel=vchannel,
        deliver_policy=_policy(policy),
        deliver_filters=[_filter(it) for it in filters],
        ignore_pause_consumption=ignore_pause,
    )
    return frame(bytes(streaming.ConsumeRequest(create_vchannel_consumer=create)))


def report_error(channel: PChannel, code: StreamingCode, cause: str) -> bytes:
    """The report to the coordinator that an assignment is wrong, framed."""
    report = streaming.ReportAssignmentErrorRequest(
        pchannel=_pchannel_info(channel),
        err=streaming.StreamingError(code=streaming.StreamingCode(code), cause=cause),
    )
    return frame(bytes(streaming.AssignmentDiscoverRequest(report_error=report)))


def read_assignment(message: bytes) -> Assignment | None:
    """The table in an AssignmentDiscoverResponse; None when it has none with a version."""
    table = streaming.AssignmentDiscoverResponse.parse(message).full_assignment
    if table is None or table.version_by_revision is None:
        return None
    version = table.version_by_revision
    host = table.cchannel.meta if table.cchannel else None
    return Assignment(
        version=AssignmentVersion(version.global_, version.local),
        nodes=tuple(_node(it) for it in table.assignments),
        control_host=PChannelName(host.pchannel if host else ""),
        streaming_version=table.streaming_version.version if table.streaming_version else 0,
    )


def _node(entry: streaming.StreamingNodeAssignment) -> NodeAssignment:
    node = entry.node or streaming.StreamingNodeInfo()
    channels = tuple(
        PChannel(PChannelName(it.name), Term(it.term), AccessMode(int(it.access_mode)))
        for it in entry.channels
    )
    return NodeAssignment(NodeId(node.server_id), node.address, channels)


def _pchannel_info(channel: PChannel) -> streaming.PChannelInfo:
    return streaming.PChannelInfo(
        name=channel.name,
        term=channel.term,
        access_mode=streaming.PChannelAccessMode(channel.access),
    )


def _policy(policy: DeliverPolicy) -> streaming.DeliverPolicy:
    match policy:
        case FromAll():
            return streaming.DeliverPolicy(all=Empty())
        case FromLatest():
            return streaming.DeliverPolicy(latest=Empty())
        case StartFrom(id):
            return streaming.DeliverPolicy(start_from=_message_id(id))
        case StartAfter(id):
            return streaming.DeliverPolicy(start_after=_message_id(id))


def _filter(wanted: DeliverFilter) -> streaming.DeliverFilter:
    match wanted:
        case TimeTickGt(tick):
            return streaming.DeliverFilter(
                time_tick_gt=streaming.DeliverFilterTimeTickGt(time_tick=tick)
            )
        case TimeTickGte(tick):
            return streaming.DeliverFilter(
                time_tick_gte=streaming.DeliverFilterTimeTickGte(time_tick=tick)
            )
        case MessageTypes(types):
            kinds = [messages.MessageType(kind) for kind in sorted(types)]
            return streaming.DeliverFilter(
                message_type=streaming.DeliverFilterMessageType(message_types=kinds)
            )


def _message_id(id: MessageId) -> common.MessageId:
    return common.MessageId(id=rocksmq_id_text(id), WAL_name=common.WalName.RocksMQ)
