"""Encodes runs: messages with consecutive ids and ticks, framed for gRPC in one piece.

The bytes are those that `splice.py` and `frames` make one message at a time. What neighbours have
in common is encoded once: ids and ticks grow by one, so mostly their last digits differ alone.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from schemas.encoding.base36 import PAIRS, base36
from schemas.encoding.varint import varint
from schemas.splice import (
    CONFIRMS_ITSELF,
    ID_HEAD,
    ID_TAIL,
    TICK_HEAD,
    confirmed_property,
    term_property,
)

_FRAME: Final = Struct(">BI")
_LOW_BYTES: Final = tuple([bytes((value | 128,)) for value in range(128)])
_WHOLE: Final = (b"",)


def consume_run(
    message_id: int, tick: int, last_confirmed_id: int, term: int, stored: Sequence[bytes]
) -> bytes:
    """A framed ConsumeResponse for each stored message; `message_id` and `tick` are the first's.

    A `last_confirmed_id` equal to `message_id` says that each message confirms its own id.
    """
    itself = last_confirmed_id == message_id
    confirmed = CONFIRMS_ITSELF if itself else confirmed_property(last_confirmed_id)
    tail = confirmed + term_property(term)
    parts: list[bytes] = []
    at = 0
    while at < len(stored):
        own, own_last = _digits(message_id + at, len(stored) - at)
        ticked, tick_last = _digits(tick + at, len(own_last))
        own_bytes, tick_bytes = len(own) + len(own_last[0]), len(ticked) + len(tick_last[0])
        # 6 bytes round the id, 9 round the tick.
        around = 15 + own_bytes + tick_bytes + len(tail)
        tick_head = TICK_HEAD[tick_bytes] + ticked
        length, head = -1, b""
        for index, tick_end in enumerate(tick_last):
            body = stored[at + index]
            if len(body) != length:
                length = len(body)
                head = _consume_head(around + length) + ID_HEAD[own_bytes] + own
            parts += (head, own_last[index], ID_TAIL, body, tick_head, tick_end, tail)
        at += len(tick_last)
    return b"".join(parts)


def produce_run(
    request_ids: Sequence[int], message_id: int, tick: int, last_confirmed_id: int
) -> bytes:
    """A framed ProduceResponse for each request: where its message landed, as in `consume_run`."""
    itself = last_confirmed_id == message_id
    confirmed = base36(last_confirmed_id)
    confirmed_bytes = len(confirmed)
    parts: list[bytes] = []
    at = 0
    while at < len(request_ids):
        own, own_last = _digits(message_id + at, len(request_ids) - at)
        low, high = _varints(tick + at, len(own_last))
        own_bytes = len(own) + len(own_last[0])
        if itself:
            confirmed, confirmed_bytes = own, own_bytes
        # 6 bytes round each id, 1 tag before the tick.
        size = 13 + own_bytes + len(low[0]) + len(high) + confirmed_bytes
        own_head = b"\x12" + varint(size) + ID_HEAD[own_bytes] + own
        middle = high + b"\x2a" + ID_HEAD[confirmed_bytes][1:] + confirmed
        length, head = -1, b""
        for index, low_byte in enumerate(low):
            request, own_end = varint(request_ids[at + index]), own_last[index]
            if len(request) != length:
                length = len(request)
                # 3: two tags, and `size` itself, which is below 128 and so one byte.
                head = _head(size + length + 3) + b"\x08"
            confirmed_end = own_end if itself else b""
            parts += (
                head, request, own_head, own_end, b"\x10\x01\x10", low_byte, middle, confirmed_end,
                ID_TAIL,
            )  # fmt: skip
        at += len(low)
    return b"".join(parts)


def _consume_head(size: int) -> bytes:
    size_bytes = varint(size)
    # 3: the consumer id and its tag, and the tag of the message.
    return _head(3 + len(size_bytes) + size) + b"\x08\x01\x12" + size_bytes


def _head(size: int) -> bytes:
    """gRPC's head, tag and length of a response whose only field has `size` bytes."""
    size_bytes = varint(size)
    return _FRAME.pack(0, 1 + len(size_bytes) + size) + b"\x12" + size_bytes


def _digits(value: int, count_max: int) -> tuple[bytes, Sequence[bytes]]:
    """Base 36 of `value` and its successors: what they begin with, and the end of each.

    As many as begin alike, at most `count_max`.
    """
    high, low = divmod(value, len(PAIRS))
    if high:
        return base36(high), PAIRS[low : low + count_max]
    return base36(value), _WHOLE


def _varints(value: int, count_max: int) -> tuple[Sequence[bytes], bytes]:
    """Varints of `value` and its successors: the first byte of each, and what they end with."""
    low, high = value & 127, value >> 7
    if high:
        return _LOW_BYTES[low : low + count_max], varint(high)
    return (varint(low),), b""
