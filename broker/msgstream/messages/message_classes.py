"""The classes of messages that streams carry, apart from those with rows."""

from typing import Any, ClassVar, Self

from broker.msgstream.messages.body_msg import BodyMsg, header
from broker.msgstream.messages.msg_type import MsgType
from schemas.generated.milvus.proto import msg
from schemas.generated.tidemark import v1


class _Timeless:
    """Of messages without a time: a window of any end has them, so read them from plain streams."""

    __slots__ = ()

    def _span(self) -> tuple[int, int]:
        return 0, 0


class TimeTickMsg(BodyMsg[msg.TimeTickMsg]):
    """A promise: every message of the sender up to this tick was sent before it."""

    __slots__ = ()
    kind = MsgType.TIME_TICK
    body_type: ClassVar[Any] = msg.TimeTickMsg

    @classmethod
    def at(cls, tick: int, *, source_id: int = 0) -> Self:
        """The time tick of one sender; 0 is the master. Its hash key is 0."""
        return cls(msg.TimeTickMsg(base=header(tick, source_id=source_id)), hash_keys=[0])


class SearchMsg(BodyMsg[v1.SearchBody]):
    """A search; its result goes to the channel that it names."""

    __slots__ = ()
    kind = MsgType.SEARCH
    body_type: ClassVar[Any] = v1.SearchBody


class SearchResultMsg(BodyMsg[v1.SearchResultBody]):
    """What a query node has found, or why it has not."""

    __slots__ = ()
    kind = MsgType.SEARCH_RESULT
    body_type: ClassVar[Any] = v1.SearchResultBody


class RetrieveMsg(BodyMsg[v1.RetrieveBody]):
    """Asks for rows by their ids."""

    __slots__ = ()
    kind = MsgType.RETRIEVE
    body_type: ClassVar[Any] = v1.RetrieveBody


class RetrieveResultMsg(BodyMsg[v1.RetrieveResultBody]):
    """The rows that were asked for, or why there are none."""

    __slots__ = ()
    kind = MsgType.RETRIEVE_RESULT
    body_type: ClassVar[Any] = v1.RetrieveResultBody


class QueryNodeStatsMsg(_Timeless, BodyMsg[v1.QueryNodeStatsBody]):
    """The segments that a query node has loaded."""

    __slots__ = ()
    kind = MsgType.QUERY_NODE_STATS
    body_type: ClassVar[Any] = v1.QueryNodeStatsBody


class CreateCollectionMsg(BodyMsg[msg.CreateCollectionRequest]):
    """A collection was created."""

    __slots__ = ()
    kind = MsgType.CREATE_COLLECTION
    body_type: ClassVar[Any] = msg.CreateCollectionRequest


class DropCollectionMsg(BodyMsg[msg.DropCollectionRequest]):
    """A collection was dropped."""

    __slots__ = ()
    kind = MsgType.DROP_COLLECTION
    body_type: ClassVar[Any] = msg.DropCollectionRequest


class CreatePartitionMsg(BodyMsg[msg.CreatePartitionRequest]):
    """A partition was created."""

    __slots__ = ()
    kind = MsgType.CREATE_PARTITION
    body_type: ClassVar[Any] = msg.CreatePartitionRequest


class DropPartitionMsg(BodyMsg[msg.DropPartitionRequest]):
    """A partition was dropped."""

    __slots__ = ()
    kind = MsgType.DROP_PARTITION
    body_type: ClassVar[Any] = msg.DropPartitionRequest


class SegmentStatisticsMsg(_Timeless, BodyMsg[v1.SegmentStatisticsBody]):
    """The sizes of segments."""

    __slots__ = ()
    kind = MsgType.SEGMENT_STATISTICS
    body_type: ClassVar[Any] = v1.SegmentStatisticsBody


class LoadBalanceSegmentsMsg(BodyMsg[v1.LoadBalanceSegmentsBody]):
    """Segments move from some query nodes to others."""

    __slots__ = ()
    kind = MsgType.LOAD_BALANCE_SEGMENTS
    body_type: ClassVar[Any] = v1.LoadBalanceSegmentsBody


class DataNodeTtMsg(_Timeless, BodyMsg[v1.DataNodeTtBody]):
    """A data node has processed one channel up to a tick."""

    __slots__ = ()
    kind = MsgType.DATA_NODE_TT
    body_type: ClassVar[Any] = v1.DataNodeTtBody
