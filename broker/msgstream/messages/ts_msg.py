"""What every message of a stream has, and the position and the pack that messages travel in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from broker.msgstream.messages.msg_type import MsgType
from broker.msgstream.stream_errors import BadPosition
from schemas.generated.tidemark import v1


@dataclass(frozen=True, slots=True)
class MsgPosition:
    """Where a consumer continues on one channel: a checkpoint, to be stored as bytes.

    `msg_id` is opaque: only the kind of log that gave it understands it. `timestamp`: everything up
    to this tick was in a pack; of a plain stream it is that of the message, which was the last.
    """

    channel_name: str
    msg_id: bytes
    msg_group: str = ""
    timestamp: int = 0

    def __bytes__(self) -> bytes:
        return bytes(
            v1.StreamPosition(self.channel_name, self.msg_id, self.msg_group, self.timestamp)
        )

    @classmethod
    def parse(cls, stored: bytes) -> Self:
        """The position that was stored. BadPosition for anything else."""
        try:
            it = v1.StreamPosition.parse(stored)
        except Exception as error:  # noqa: BLE001 - the decoder has no error of its own
            raise BadPosition(f"{stored[:40]!r} is not a stored position: {error}") from None
        if not it.channel_name:
            raise BadPosition(f"{stored[:40]!r} is not a stored position: it names no channel")
        return cls(it.channel_name, it.msg_id, it.msg_group, it.timestamp)


class TsMsg(Protocol):
    """A message with timestamps. Hash keys and the position do not travel with it.

    `begin_ts`, `end_ts`: of its first and last row; 0 where it has none. `trace_ctx`: the headers
    of a trace (`traceparent`, ...), which travel in the header of the message.
    """

    hash_keys: Sequence[int]
    position: MsgPosition | None

    @property
    def trace_ctx(self) -> Mapping[str, str]: ...

    def set_trace_ctx(self, trace_ctx: Mapping[str, str]) -> None: ...

    def set_position(self, position: MsgPosition) -> None: ...

    @property
    def id(self) -> int: ...

    @property
    def begin_ts(self) -> int: ...

    @property
    def end_ts(self) -> int: ...

    @property
    def type(self) -> MsgType: ...

    @property
    def source_id(self) -> int: ...

    def marshal(self) -> bytes:
        """The body, its header first."""
        ...


class MsgPack:
    """Messages that are sent together, or that were read together.

    Of a time tick stream: all messages of the window (begin_ts, end_ts], grouped by channel, which
    may be none. `end_positions` is where to continue behind it: the checkpoint to store.
    """

    __slots__ = ("_msgs", "begin_ts", "end_positions", "end_ts", "start_positions")

    def __init__(
        self,
        msgs: Sequence[TsMsg] = (),
        *,
        begin_ts: int = 0,
        end_ts: int = 0,
        start_positions: Sequence[MsgPosition] = (),
        end_positions: Sequence[MsgPosition] = (),
    ) -> None:
        self._msgs: Sequence[TsMsg] | None = msgs
        self.begin_ts = begin_ts
        self.end_ts = end_ts
        self.start_positions = start_positions
        self.end_positions = end_positions

    @property
    def msgs(self) -> Sequence[TsMsg]:
        """Its messages."""
        assert self._msgs is not None
        return self._msgs

    def __repr__(self) -> str:
        span = f"({self.begin_ts}, {self.end_ts}]" if self.end_ts else ""
        return f"<{type(self).__name__} {span}>"
