"""The base of all message classes: a protobuf body whose first field is the header."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

from broker.msgstream.messages.msg_header import type_of
from broker.msgstream.messages.msg_type import MsgType
from broker.msgstream.messages.ts_msg import MsgPosition
from broker.msgstream.stream_errors import BadMessage
from schemas.generated.milvus.proto import common
from schemas.message_bytes import parsed

B = TypeVar("B", bound=Any)


class BodyMsg(Generic[B]):
    """A message of one type. `kind` and `body_type` are those of the class."""

    __slots__ = ("_begin_ts", "_end_ts", "body", "hash_keys", "position")

    kind: ClassVar[MsgType]
    body_type: ClassVar[Any]

    def __init__(self, body: B, *, hash_keys: Sequence[int] = ()) -> None:
        """`body`: its header may be missing. BadMessage when it has the type of another class."""
        if body.base is None:
            body.base = common.MsgBase()
        # Milvus's enum lacks most of these numbers, but takes any.
        if int(body.base.msg_type) not in (0, self.kind):
            named = int(body.base.msg_type)
            raise BadMessage(
                f"a body of type {named} is not of type {self.kind.name} ({self.kind})"
            )
        body.base.msg_type = common.MsgType(int(self.kind))
        self.body = body
        self.hash_keys = hash_keys
        self.position: MsgPosition | None = None
        self._begin_ts, self._end_ts = self._span()

    @classmethod
    def unmarshal(cls, raw: object) -> Self:
        """The message that has this body. BadMessage for anything else."""
        kind = type_of(raw)
        if kind != cls.kind:
            raise BadMessage(f"a body of type {kind.name} is not of type {cls.kind.name}")
        try:
            assert isinstance(raw, bytes)  # it has a type
            return cls(parsed(cls.body_type, raw))
        except BadMessage:
            raise
        except Exception as error:
            raise BadMessage(f"a {cls.kind.name} cannot be decoded: {error}") from error

    def marshal(self) -> bytes:
        """The body, its header first."""
        return bytes(self.body)

    def _span(self) -> tuple[int, int]:
        timestamp = int(self.body.base.timestamp)
        return timestamp, timestamp

    @property
    def begin_ts(self) -> int:
        """The smallest timestamp of its rows."""
        return self._begin_ts

    @property
    def end_ts(self) -> int:
        """The largest timestamp of its rows."""
        return self._end_ts

    @property
    def type(self) -> MsgType:
        """Its type, as in the header."""
        return self.kind

    @property
    def id(self) -> int:
        """The id of the request, as in the header."""
        return int(self.body.base.msg_id)

    @property
    def source_id(self) -> int:
        """The id of the sender, as in the header."""
        return int(self.body.base.source_id)

    @property
    def trace_ctx(self) -> Mapping[str, str]:
        """The headers of the trace that it belongs to."""
        return dict(self.body.base.properties)

    def set_trace_ctx(self, trace_ctx: Mapping[str, str]) -> None:
        """Replace the headers of its trace."""
        self.body.base.properties = dict(trace_ctx)

    def set_position(self, position: MsgPosition) -> None:
        """Note where it was read."""
        self.position = position

    def __eq__(self, other: object) -> bool:
        """Equal bodies; where they were read, and their keys, do not count."""
        return type(other) is type(self) and bool(self.body == other.body)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.body!r})"


def header(timestamp: int = 0, *, msg_id: int = 0, source_id: int = 0) -> common.MsgBase:
    """The header of a message that is about to be sent."""
    return common.MsgBase(timestamp=timestamp, msg_id=msg_id, source_id=source_id)
