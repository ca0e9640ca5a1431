"""Builds what a server sends on the hot streams, around the unchanged bytes of stored messages.

A stored message gets its id in front and the server's properties behind. That is valid because
protobuf merges map entries wherever they are, and the last entry of a key wins.
"""

from functools import lru_cache
from typing import Final

from schemas.encoding.base36 import base36
from schemas.encoding.base64_text import base64_text
from schemas.encoding.entries import write_entry
from schemas.encoding.fields import field
from schemas.encoding.varint import varint
from schemas.status import StreamingError, streaming_error

CONSUMER_ID: Final = 1
"""One stream is one consumer, so its id is a constant."""

# 64 bits have at most 13 digits in base 36, so the lengths below are one byte each.
_ID_TEXT_MAX: Final = 14
ID_HEAD: Final = tuple(bytes((0x0A, n + 4, 0x0A, n)) for n in range(_ID_TEXT_MAX))
ID_TAIL: Final = b"\x10\x01"
"""WAL_name = RocksMQ."""
TICK_HEAD: Final = tuple(
    bytes((0x1A, n + 7)) + b"\x0a\x03_tt\x12" + bytes((n,)) for n in range(_ID_TEXT_MAX)
)
_CONFIRMED_HEAD: Final = tuple(
    bytes((0x1A, n + 7)) + b"\x0a\x03_lc\x12" + bytes((n,)) for n in range(_ID_TEXT_MAX)
)
CONFIRMS_ITSELF: Final = b"\x1a\x08\x0a\x04_lcs\x12\x00"
_PROPERTY: Final = b"\x1a"
_NOT_PERSISTED: Final = b"\x1a\x07\x0a\x03_np\x12\x00"
_TIME_TICK_PROPERTIES: Final = (
    b"\x1a\x07\x0a\x02_t\x12\x011\x1a\x07\x0a\x02_v\x12\x011\x1a\x06\x0a\x02_h\x12\x00"
)
# `common.MsgType.TimeTick`.
_TIME_TICK_TYPE: Final = b"\x08" + varint(1200)


def produce_result(request_id: int, message_id: int, tick: int, last_confirmed_id: int) -> bytes:
    """A ProduceResponse that says where a message landed."""
    own, confirmed = base36(message_id), base36(last_confirmed_id)
    tick_bytes = varint(tick)
    # 6 bytes round each id, 1 tag before the tick.
    size = 13 + len(own) + len(tick_bytes) + len(confirmed)
    request = varint(request_id)
    return b"".join(
        (
            b"\x12",
            # 3: two tags, and `size` itself, which is below 128 and so one byte.
            varint(size + len(request) + 3),
            b"\x08",
            request,
            b"\x12",
            varint(size),
            ID_HEAD[len(own)],
            own,
            b"\x10\x01\x10",
            tick_bytes,
            b"\x2a",
            ID_HEAD[len(confirmed)][1:],
            confirmed,
            ID_TAIL,
        )
    )


def produce_result_in_txn(
    request_id: int, message_id: int, tick: int, last_confirmed_id: int, txn_context: bytes
) -> bytes:
    """The same for a message of a transaction, with the encoded `messages.TxnContext`."""
    result = b"".join(
        (
            field(0x0A, _rocksmq_id(message_id)),
            b"\x10",
            varint(tick),
            field(0x1A, txn_context),
            field(0x2A, _rocksmq_id(last_confirmed_id)),
        )
    )
    return field(0x12, b"".join((b"\x08", varint(request_id), field(0x12, result))))


def _rocksmq_id(message_id: int) -> bytes:
    return field(0x0A, base36(message_id)) + ID_TAIL


def produce_error(request_id: int, code: int, cause: str) -> bytes:
    """A ProduceResponse that refuses one message; the stream continues."""
    error = streaming_error(StreamingError(code, cause))
    return field(0x12, b"".join((b"\x08", varint(request_id), field(0x1A, error))))


def produce_rate_limit(state: int, bytes_s: int) -> bytes:
    """A ProduceResponse that tells at which rate appends are taken; no request asks for it.

    `state` is a WALRateLimitState. Older clients of Milvus skip it.
    """
    rate = b"\x10" + varint(bytes_s) if bytes_s else b""
    return field(0x22, b"\x08" + varint(state) + rate)


def consume_message(
    message_id: int, tick: int, last_confirmed_id: int, term: int, stored: bytes
) -> bytes:
    """A ConsumeResponse that delivers one stored message."""
    if last_confirmed_id == message_id:
        confirmed = CONFIRMS_ITSELF
    else:
        confirmed = confirmed_property(last_confirmed_id)
    return _delivery(base36(message_id), stored, base36(tick), confirmed + term_property(term))


def consume_in_txn(
    message_id: int,
    tick: int,
    last_confirmed_id: int,
    term: int,
    stored: bytes,
    begins: bytes = b"",
) -> bytes:
    """A ConsumeResponse for a begin or a body: tick and last confirmed id are the commit's.

    `begins`: the encoded `messages.TxnContext` that only the server knows for a begin.
    """
    # Never `_lcs`: it means the message's own id, and these have the commit's.
    tail = confirmed_property(last_confirmed_id) + term_property(term)
    if begins:
        tail += write_entry(_PROPERTY, "_tx", base64_text(begins))
    return _delivery(base36(message_id), stored, base36(tick), tail)


def consume_time_tick(
    message_id: int, tick: int, last_confirmed_id: int, term: int, persisted: bool, node_id: int
) -> bytes:
    """A ConsumeResponse with a time tick: no message up to `tick` follows.

    A tick that is not persisted has no id of its own: callers pass its last confirmed id for both.
    """
    if persisted and last_confirmed_id == message_id:
        confirmed = CONFIRMS_ITSELF
    else:
        confirmed = confirmed_property(last_confirmed_id)
    tail = confirmed + term_property(term) + (b"" if persisted else _NOT_PERSISTED)
    stored = field(0x12, time_tick_payload(tick, node_id)) + _TIME_TICK_PROPERTIES
    return _delivery(base36(message_id), stored, base36(tick), tail)


def time_tick_payload(tick: int, node_id: int) -> bytes:
    """The bytes of a `msg.TimeTickMsg`."""
    source = b"\x20" + varint(node_id) if node_id else b""
    timestamp = b"\x18" + varint(tick) if tick else b""
    return field(0x0A, _TIME_TICK_TYPE + timestamp + source)


def _delivery(own: bytes, stored: bytes, tick: bytes, tail: bytes) -> bytes:
    # 6 bytes round the id, 9 round the tick.
    size = 15 + len(own) + len(stored) + len(tick) + len(tail)
    size_bytes = varint(size)
    return b"".join(
        (
            b"\x12",
            # 3: the consumer id and its tag, and the tag of the message.
            varint(3 + len(size_bytes) + size),
            b"\x08\x01\x12",
            size_bytes,
            ID_HEAD[len(own)],
            own,
            ID_TAIL,
            stored,
            TICK_HEAD[len(tick)],
            tick,
            tail,
        )
    )


@lru_cache(maxsize=64)
def confirmed_property(last_confirmed_id: int) -> bytes:
    """All messages of a record share one value."""
    text = base36(last_confirmed_id)
    return _CONFIRMED_HEAD[len(text)] + text


@lru_cache(maxsize=1024)
def term_property(term: int) -> bytes:
    """The property of the term in which a message was written."""
    text = base36(term)
    return bytes((0x1A, len(text) + 7)) + b"\x0a\x03_wt\x12" + bytes((len(text),)) + text
