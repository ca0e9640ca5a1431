"""Refusals: Milvus's streaming codes, as a value inside and as an exception at the edges."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

CAUSE_BYTES_MAX: Final = 4096
"""Of UTF-8. It is sent in headers, of which many peers take 8 KiB, and a cause may quote what a
peer has sent."""
_SURELY_SHORT: Final = CAUSE_BYTES_MAX // 4


class StreamingCode(IntEnum):
    """Numbers of `milvus.proto.streaming.StreamingCode`, and two of ours.

    Milvus has no code for the last two; its clients get UNRECOVERABLE, which they do not retry.
    """

    OK = 0
    CHANNEL_NOT_EXIST = 1
    CHANNEL_FENCED = 2
    ON_SHUTDOWN = 3
    INVALID_REQUEST_SEQ = 4
    UNMATCHED_CHANNEL_TERM = 5
    IGNORED_OPERATION = 6
    INNER = 7
    INVALID_ARGUMENT = 8
    TRANSACTION_EXPIRED = 9
    INVALID_TRANSACTION_STATE = 10
    UNRECOVERABLE = 11
    RESOURCE_ACQUIRED = 12
    REPLICATE_VIOLATION = 13
    WAL_NAME_MISMATCH = 14
    SCHEMA_VERSION_MISMATCH = 15
    RATE_LIMIT_REJECTED = 16
    UNKNOWN = 999
    PERMISSION_DENIED = 1007
    NOT_AUTHENTICATED = 1016


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was not carried out: what was wrong, with which value, and what to do.

    A cause of over CAUSE_BYTES_MAX is cut.
    """

    code: StreamingCode
    cause: str

    def __post_init__(self) -> None:
        if len(self.cause) > _SURELY_SHORT:
            data = self.cause.encode("utf-8", "replace")
            if len(data) > CAUSE_BYTES_MAX:
                cut = data[: CAUSE_BYTES_MAX - 3].decode("utf-8", "ignore") + "..."
                object.__setattr__(self, "cause", cut)


class Dropped(Refusal):
    """The collection of the vchannel was dropped, so nothing was stored."""


@dataclass(frozen=True, slots=True)
class Throttled(Refusal):
    """Nothing was stored, for a limit is reached; it is worth to come again after `retry_ms`."""

    retry_ms: int


@dataclass(frozen=True, slots=True)
class NotLeading(Refusal):
    """This coordinator does not lead, so nothing was done. `leader`: who does, or ""."""

    leader: str


class Refused(Exception):
    """A `Refusal` as an exception."""

    def __init__(self, code: StreamingCode, cause: str) -> None:
        self.refusal = Refusal(code, cause)
        super().__init__(f"{code.name}: {self.refusal.cause}")


class ComeLater(Refused):
    """A `Throttled` as an exception."""

    def __init__(self, throttled: Throttled) -> None:
        super().__init__(throttled.code, throttled.cause)
        self.refusal = throttled


class DoesNotLead(Refused):
    """A `NotLeading` as an exception. `leader`: HOST:PORT to call instead; "": none is known."""

    def __init__(self, cause: str, leader: str = "") -> None:
        super().__init__(StreamingCode.ON_SHUTDOWN, cause)
        self.leader = leader
        self.refusal = NotLeading(StreamingCode.ON_SHUTDOWN, cause, leader)


def invalid_argument(cause: str) -> Refused:
    """The refusal of a request that can never succeed: what is wrong, and with which value."""
    return Refused(StreamingCode.INVALID_ARGUMENT, cause)
