"""How a refusal ends a call: the gRPC code, and the details trailer that clients read."""

from dataclasses import dataclass, replace
from typing import Final

from schemas.encoding.fields import field, fields
from schemas.encoding.varint import signed, varint

UNKNOWN: Final = 999
"""The streaming code of an error that carries none."""

CAUSE_CHARACTERS_MAX: Final = 1024

_TYPE: Final = b"milvus.proto.streaming.StreamingError"
_TYPE_URL: Final = b"type.googleapis.com/" + _TYPE
_NOT_LEADING: Final = b"tidemark.v1.NotLeading"
_NOT_LEADING_URL: Final = b"type.googleapis.com/" + _NOT_LEADING
_RETRY_INFO: Final = b"google.rpc.RetryInfo"
_RETRY_INFO_URL: Final = b"type.googleapis.com/" + _RETRY_INFO
_MS_MAX: Final = 366 * 24 * 3_600_000
"""No server means a longer wait."""

_GRPC_UNKNOWN: Final = 2
_FAILED_PRECONDITION: Final = 9
_GRPC_CODES: Final = {
    0: 0,
    **dict.fromkeys((1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15), _FAILED_PRECONDITION),
    7: 13,
    8: 3,
    16: 8,
    1007: 7,
    1016: 16,
}
_OURS: Final = frozenset({1007, 1016})
"""Codes that Milvus does not have: permission denied, not authenticated."""
_UNRECOVERABLE: Final = 11


@dataclass(frozen=True, slots=True)
class StreamingError:
    """`streaming.StreamingError`: clients test the code; the cause is for people."""

    code: int
    cause: str
    leader: str | None = None
    """Of a coordinator that does not lead: the address of the one that does, or "" for none."""
    retry_ms: int = 0
    """How long to wait before the call is made again; 0: the server does not say."""


def grpc_code(streaming_code: int) -> int:
    """The gRPC status code that goes with a streaming code: Milvus's newest table.

    Older clients look at the details only, so one table serves all.
    """
    return _GRPC_CODES.get(streaming_code, _GRPC_UNKNOWN)


def streaming_error(error: StreamingError) -> bytes:
    """The bytes of a `streaming.StreamingError`; UNRECOVERABLE for what Milvus has no code for."""
    number = _UNRECOVERABLE if error.code in _OURS else error.code
    code = b"\x08" + varint(number) if number else b""
    cause = error.cause.encode("utf-8", "replace")
    return code + (field(0x12, cause) if cause else b"")


def status_details(error: StreamingError) -> bytes:
    """The raw value of the details trailer: a `google.rpc.Status` that holds the error.

    Its code is that of `grpc_code`, because clients drop details that disagree with grpc-status.
    A long cause is truncated, because peers drop a call whose trailers are too long.
    """
    clipped = StreamingError(error.code, error.cause[:CAUSE_CHARACTERS_MAX])
    details = field(0x1A, field(0x0A, _TYPE_URL) + field(0x12, streaming_error(clipped)))
    if error.leader is not None:
        # A detail of its own: Milvus's clients look for a StreamingError, and pass over others.
        leader = field(0x0A, error.leader.encode("utf-8", "replace")) if error.leader else b""
        details += field(0x1A, field(0x0A, _NOT_LEADING_URL) + field(0x12, leader))
    if error.retry_ms > 0:
        info = field(0x0A, _duration(error.retry_ms))
        details += field(0x1A, field(0x0A, _RETRY_INFO_URL) + field(0x12, info))
    code = grpc_code(error.code)
    return (b"\x08" + varint(code) if code else b"") + details


def read_status_details(data: bytes) -> StreamingError | None:
    """The first StreamingError among the details; None when there is none. Raises Malformed."""
    error: StreamingError | None = None
    leader: str | None = None
    retry_ms = 0
    for tag, first, stop in fields(data, 0, len(data)):
        if tag != 0x1A:
            continue
        kind, value = _read_detail(data[first:stop])
        if kind == _TYPE and error is None:
            error = read_streaming_error(value)
        elif kind == _NOT_LEADING:
            leader = _read_leader(value)
        elif kind == _RETRY_INFO:
            retry_ms = _read_retry_ms(value)
    return None if error is None else replace(error, leader=leader, retry_ms=retry_ms)


def read_streaming_error(data: bytes) -> StreamingError:
    """From the bytes of a `streaming.StreamingError`. Raises Malformed."""
    code, cause = 0, b""
    for tag, first, stop in fields(data, 0, len(data)):
        if tag == 0x08:
            code = signed(first)
        elif tag == 0x12:
            cause = data[first:stop]
    return StreamingError(code, cause.decode("utf-8", "replace"))


def _duration(ms: int) -> bytes:
    """A `google.protobuf.Duration`: seconds, and nanoseconds beside them."""
    seconds, rest = divmod(ms, 1000)
    nanos = rest * 1_000_000
    return (b"\x08" + varint(seconds) if seconds else b"") + (
        b"\x10" + varint(nanos) if nanos else b""
    )


def _read_retry_ms(data: bytes) -> int:
    """From the bytes of a `google.rpc.RetryInfo`; rounded up, 0 for a time that is none."""
    nanos = 0
    for tag, first, stop in fields(data, 0, len(data)):
        if tag == 0x0A:
            for part, number, _ in fields(data, first, stop):
                if part in (0x08, 0x10):
                    nanos += signed(number) * (1_000_000_000 if part == 0x08 else 1)
    return max(0, min(-(-nanos // 1_000_000), _MS_MAX))


def _read_leader(data: bytes) -> str:
    for tag, first, stop in fields(data, 0, len(data)):
        if tag == 0x0A:
            return data[first:stop].decode("utf-8", "replace")
    return ""


def _read_detail(data: bytes) -> tuple[bytes, bytes]:
    """The name of the type, and the value; any prefix may stand before the name in the URL."""
    type_url = value = b""
    for tag, first, stop in fields(data, 0, len(data)):
        if tag == 0x0A:
            type_url = data[first:stop]
        elif tag == 0x12:
            value = data[first:stop]
    return type_url.rpartition(b"/")[2], value
