"""Builds and scans acknowledgements of leased messages, and the answers that they are durable.

Only the form in which our client and server write them: whatever has more to say is left to the
generated code, which reads the same in these.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from schemas.encoding.fields import read_length
from schemas.encoding.frames import frame, frame_head
from schemas.encoding.varint import Malformed, read_varint, varint

_CREDIT: Final = 0x10
"""The tag of `JoinGroupRequest.credit_bytes`."""
_SETTLE: Final = 0x1A
"""The tag of `JoinGroupRequest.settle`."""
_NUMBER: Final = 0x08
_LEASE: Final = 0x10
_SPAN: Final = 0x1A
"""The tags of `SettleMessages.number`, `lease` and `spans`."""
_AFTER: Final = 0x08
_UPTO: Final = 0x10
"""The tags of `TickSpan.after` and `upto`."""
_SETTLED: Final = 0x1A
"""The tag of `JoinGroupResponse.settled`."""


class AckRequest(NamedTuple):
    """A JoinGroupRequest with one acknowledgement outside of transactions."""

    number: int
    lease: int
    spans: list[tuple[int, int]]
    """`after` and `upto` of each; none: all that is left of the lease."""
    credit_bytes: int


def ack_request(number: int, lease: int, spans: Iterable[tuple[int, int]], credit: int) -> bytes:
    """A framed AckRequest; `number` and `lease` are above 0."""
    parts = [b"\x08", varint(number), b"\x10", varint(lease)]
    for after, upto in spans:
        span = (b"\x08" + varint(after) if after else b"") + b"\x10" + varint(upto)
        parts += (b"\x1a", varint(len(span)), span)
    settle = b"".join(parts)
    head = b"\x10" + varint(credit) if credit else b""
    return frame(b"".join((head, b"\x1a", varint(len(settle)), settle)))


def scan_ack_request(data: bytes) -> AckRequest | None:
    """The request; None for one of another form, or a damaged one: the generated code says how."""
    try:
        return _scanned(data)
    except Malformed:
        return None


def acknowledged_response(number: int) -> bytes:
    """A framed JoinGroupResponse that says of one request, by its number, that it is done."""
    settled = b"\x08" + varint(number)
    size = len(settled)
    return frame_head(2 + size) + bytes((_SETTLED, size)) + settled


def acknowledged_number(data: bytes) -> int:
    """What `acknowledged_response` was made of, without its frame; 0 for any other response."""
    end = len(data)
    if end < 4 or data[0] != _SETTLED or data[1] != end - 2 or data[2] != _NUMBER:
        return 0
    try:
        number, after = read_varint(data, 3, end)
    except Malformed:
        return 0
    return number if after == end and not number >> 63 else 0


def _scanned(data: bytes) -> AckRequest | None:
    end, at, credit = len(data), 0, 0
    if end and data[0] == _CREDIT:
        credit, at = read_varint(data, 1, end)
    if at == end or data[at] != _SETTLE:
        return None
    at, stop = read_length(data, at + 1, end)
    if stop != end or at == end or data[at] != _NUMBER:
        return None
    number, at = read_varint(data, at + 1, end)
    if at == end or data[at] != _LEASE:
        return None
    lease, at = read_varint(data, at + 1, end)
    spans: list[tuple[int, int]] = []
    while at < end:
        if data[at] != _SPAN:
            return None
        first, at = read_length(data, at + 1, end)
        span = _span(data, first, at)
        if span is None:
            return None
        spans.append(span)
    # A number of 64 bits is below 0.
    return None if (number | lease | credit) >> 63 else AckRequest(number, lease, spans, credit)


def _span(data: bytes, at: int, end: int) -> tuple[int, int] | None:
    if at == end or data[at] != _AFTER:
        return None
    after, at = read_varint(data, at + 1, end)
    if at == end or data[at] != _UPTO:
        return None
    upto, at = read_varint(data, at + 1, end)
    return (after, upto) if at == end else None
