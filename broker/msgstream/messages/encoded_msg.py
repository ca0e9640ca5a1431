"""A message whose body is encoded already, to send or forward it without decoding."""

from collections.abc import Mapping, Sequence

from broker.msgstream.messages.msg_header import header_of, type_of
from broker.msgstream.messages.msg_type import MsgType
from broker.msgstream.messages.ts_msg import MsgPosition
from broker.msgstream.stream_errors import BadMessage
from schemas.generated.milvus.proto import common


class EncodedMsg:
    """The bytes of a message of any type, also of one that has no class.

    Its header is decoded when asked for; its span is the timestamp there. BadMessage for bytes
    without a header.
    """

    __slots__ = ("_header", "_raw", "hash_keys", "position", "type")

    def __init__(self, raw: bytes, *, hash_keys: Sequence[int] = ()) -> None:
        self.type: MsgType = type_of(raw)
        """Its type, as in the header."""
        self._raw = raw
        self._header: common.MsgBase | None = None
        self.hash_keys = hash_keys
        self.position: MsgPosition | None = None

    def marshal(self) -> bytes:
        """The bytes."""
        return self._raw

    @property
    def trace_ctx(self) -> Mapping[str, str]:
        """The headers of the trace that it belongs to."""
        return dict(self._base.properties)

    def set_trace_ctx(self, trace_ctx: Mapping[str, str]) -> None:
        """Refused with BadMessage: the bytes are not changed any more."""
        raise BadMessage("an encoded message takes no trace; set it before the message is encoded")

    def set_position(self, position: MsgPosition) -> None:
        """Note where it was read."""
        self.position = position

    @property
    def id(self) -> int:
        """The id of the request."""
        return int(self._base.msg_id)

    @property
    def source_id(self) -> int:
        """The id of the sender."""
        return int(self._base.source_id)

    @property
    def begin_ts(self) -> int:
        """The timestamp of the header."""
        return int(self._base.timestamp)

    @property
    def end_ts(self) -> int:
        """The timestamp of the header."""
        return int(self._base.timestamp)

    @property
    def _base(self) -> common.MsgBase:
        if self._header is None:
            self._header = header_of(self._raw)
        return self._header
