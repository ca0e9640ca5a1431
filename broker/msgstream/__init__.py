"""Message streams: typed messages in packs, each with everything up to one time tick.

    async with connect("127.0.0.1:19531") as log:
        stream = TidemarkMsgStreamFactory(log).new_tt_msg_stream()
        await stream.as_consumer(["orders"], "billing")
        await stream.start()
        async for pack in stream.chan():
            ...

README.md here is the guide.
"""

from broker.msgstream.backends.memory_backend import MemoryBackend
from broker.msgstream.factories import (
    MemMsgStreamFactory,
    MsgStreamFactory,
    TidemarkMsgStreamFactory,
)
from broker.msgstream.log_clock import LogPack
from broker.msgstream.messages.encoded_msg import EncodedMsg
from broker.msgstream.messages.encoded_pack import EncodedPack
from broker.msgstream.messages.message_classes import (
    CreateCollectionMsg,
    CreatePartitionMsg,
    DataNodeTtMsg,
    DropCollectionMsg,
    DropPartitionMsg,
    LoadBalanceSegmentsMsg,
    QueryNodeStatsMsg,
    RetrieveMsg,
    RetrieveResultMsg,
    SearchMsg,
    SearchResultMsg,
    SegmentStatisticsMsg,
    TimeTickMsg,
)
from broker.msgstream.messages.msg_type import MsgType
from broker.msgstream.messages.row_msgs import DeleteMsg, InsertMsg
from broker.msgstream.messages.ts_msg import MsgPack, MsgPosition, TsMsg
from broker.msgstream.messages.unmarshal_dispatcher import (
    MemUDFactory,
    ProtoUDFactory,
    UnmarshalDispatcher,
)
from broker.msgstream.msg_stream import MsgStream
from broker.msgstream.stream_errors import (
    BadMessage,
    BadPosition,
    ChannelDestroyed,
    NoTemplate,
    RepackFailed,
    SilentChannel,
    TooMuchWaits,
    WrongOrder,
)
from broker.msgstream.stream_options import StreamCounters, StreamOptions
from broker.msgstream.tt_msg_stream import TtMsgStream

__all__ = [
    "BadMessage",
    "BadPosition",
    "ChannelDestroyed",
    "CreateCollectionMsg",
    "CreatePartitionMsg",
    "DataNodeTtMsg",
    "DeleteMsg",
    "DropCollectionMsg",
    "DropPartitionMsg",
    "EncodedMsg",
    "EncodedPack",
    "InsertMsg",
    "LoadBalanceSegmentsMsg",
    "LogPack",
    "MemMsgStreamFactory",
    "MemUDFactory",
    "MemoryBackend",
    "MsgPack",
    "MsgPosition",
    "MsgStream",
    "MsgStreamFactory",
    "MsgType",
    "NoTemplate",
    "ProtoUDFactory",
    "QueryNodeStatsMsg",
    "RepackFailed",
    "RetrieveMsg",
    "RetrieveResultMsg",
    "SearchMsg",
    "SearchResultMsg",
    "SegmentStatisticsMsg",
    "SilentChannel",
    "StreamCounters",
    "StreamOptions",
    "TidemarkMsgStreamFactory",
    "TimeTickMsg",
    "TooMuchWaits",
    "TsMsg",
    "TtMsgStream",
    "UnmarshalDispatcher",
    "WrongOrder",
]
