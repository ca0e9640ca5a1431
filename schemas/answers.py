"""The client's side of the hot streams: builds produce requests, scans the server's answers.

It never decodes a payload. The shapes that this server sends take a fast path; every other valid
protobuf encoding takes a general one, with the same result.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from schemas.encoding.base36 import read_base36, rocksmq_id
from schemas.encoding.entries import read_entry, write_entry
from schemas.encoding.fields import fields, read_length
from schemas.encoding.varint import Malformed, read_varint, signed, varint
from schemas.status import read_streaming_error

_MESSAGE_PROPERTY: Final = b"\x12"
_BASE36_WALS: Final = frozenset({1, 3})
"""RocksMQ and Kafka."""
_TICK_KEY: Final = b"\x0a\x03_tt\x12"
_REPEATED_KEYS: Final = frozenset({"_t", "_v", "_h", "_vc", "_lcs", "_lc", "_wt"})
_REMEMBERED_MAX: Final = 1024
_REMEMBERED_BYTES_MAX: Final = 1024
# Properties, by the bytes before and behind the time tick.
_remembered: dict[tuple[bytes, bytes], dict[str, str]] = {}
_heads: dict[int, bytes] = {}  # by the size of a whole ConsumeResponse


class Produced(NamedTuple):
    """A message landed in the log."""

    request_id: int
    message_id: int
    tick: int
    last_confirmed_id: int
    txn_context: bytes = b""
    """The encoded `messages.TxnContext`; empty outside a transaction."""
    durability: int = 0
    """A `tidemark.v1.Durability`; 0 is FSYNC, the only one that Milvus knows."""


class ProduceFailed(NamedTuple):
    """One message was refused; `code` is a StreamingCode."""

    request_id: int
    code: int
    cause: str


@dataclass(frozen=True, slots=True)
class Created:
    """The stream is accepted: the first answer on every Produce and Consume stream."""

    wal_name: str
    server_id: int


@dataclass(frozen=True, slots=True)
class VChannelCreated:
    """The consumer is set up; messages follow."""

    consumer_id: int


@dataclass(frozen=True, slots=True)
class VChannelRefused:
    """The consumer is not set up; `code` is a StreamingCode."""

    code: int
    cause: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The server will send nothing more."""


class Consumed(NamedTuple):
    """One delivered message; what the properties say is decoded when asked for."""

    message_id: int
    payload: bytes
    properties: dict[str, str]

    @property
    def tick(self) -> int:
        """`_tt`. Raises Malformed when it is missing or not base-36."""
        return read_base36(self.properties.get("_tt", ""))

    @property
    def last_confirmed_id(self) -> int:
        """`_lcs` or `_lc`. Raises Malformed when neither is usable."""
        if "_lcs" in self.properties:
            return self.message_id
        return rocksmq_id(self.properties.get("_lc", ""))


ProduceAnswer = Produced | ProduceFailed | Created | Closed
ConsumeAnswer = Consumed | Created | VChannelCreated | VChannelRefused | Closed


def message(payload: bytes, properties: Mapping[str, str]) -> bytes:
    """A `milvus.proto.messages.Message`."""
    parts = [b"\x0a", varint(len(payload)), payload] if payload else []
    for key, value in properties.items():
        parts.append(write_entry(_MESSAGE_PROPERTY, key, value))
    return b"".join(parts)


def produce_request(request_id: int, message_bytes: bytes) -> bytes:
    """A ProduceRequest that appends one encoded Message."""
    request, size = varint(request_id), varint(len(message_bytes))
    inner = 2 + len(request) + len(size) + len(message_bytes)
    return b"".join((b"\x0a", varint(inner), b"\x08", request, b"\x12", size, message_bytes))


def scan_produce_response(frame: bytes) -> ProduceAnswer | None:
    """What a ProduceResponse says; None when it is of a kind this client does not know.

    Raises Malformed when the bytes are not a ProduceResponse, or an answer lacks what it must have.
    """
    return _scan_usual_produced(frame) or _scan_any_produced(frame)


def _scan_usual_produced(frame: bytes) -> Produced | None:
    """Where a message outside of transactions landed, as this server writes it; None for another.

    A producer runs it for every message.
    """
    end = len(frame)
    if end < 20 or end > 129 or frame[0] != 0x12 or frame[1] != end - 2 or frame[2] != 0x08:
        return None
    request_id, at = read_varint(frame, 3, end)
    # The result takes the rest; the id is its first field.
    if end - at < 10 or frame[at] != 0x12 or frame[at + 1] != end - at - 2 or frame[at + 2] != 0x0A:
        return None
    own, at = _usual_id(frame, at + 3, end)
    if not own or at >= end or frame[at] != 0x10:
        return None
    tick, at = read_varint(frame, at + 1, end)
    if at >= end or frame[at] != 0x2A:
        return None
    confirmed, at = _usual_id(frame, at + 1, end)
    if not confirmed or at != end:
        return None
    return Produced(signed(request_id), int(own, 36), tick, int(confirmed, 36))


def _usual_id(frame: bytes, at: int, end: int) -> tuple[bytes, int]:
    """The digits of the RocksMQ id whose length is at `at`, and its end; none for another form."""
    stop = at + 1 + frame[at] if end - at > 5 else end
    digits = frame[at + 3 : stop - 2] if at + 5 < stop <= end else b""
    if (
        not digits.isalnum()
        or frame[at + 1] != 0x0A
        or frame[at + 2] != len(digits)
        or len(digits) > 12
        or frame[stop - 2 : stop] != b"\x10\x01"
    ):
        return b"", at
    return digits, stop


def _scan_any_produced(frame: bytes) -> ProduceAnswer | None:
    kind, data = _last_field(frame)
    match kind:
        case 0x0A:
            return _created(data)
        case 0x12:
            return _produce_answer(data)
        case 0x1A:
            return Closed()
        case _:
            return None


def scan_consume_response(frame: bytes) -> ConsumeAnswer | None:
    """What a ConsumeResponse says; None when it is of a kind this client does not know.

    Raises Malformed when the bytes are not a ConsumeResponse.
    """
    return _scan_usual_consume(frame) or _scan_any_consume(frame)


def _scan_any_consume(frame: bytes) -> ConsumeAnswer | None:
    kind, data = _last_field(frame)
    match kind:
        case 0x0A:
            return _created(data)
        case 0x12:
            return _read_any(_joined(data, 0x12))
        case 0x1A:
            return _vchannel_answer(data)
        case 0x32:
            return Closed()
        case _:
            return None


def _scan_usual_consume(frame: bytes) -> Consumed | None:
    """A message as this server writes it: id, payload, properties; None for any other shape.

    A consumer runs it for every message.
    """
    end = len(frame)
    head = _heads.get(end) or _head_of(end)
    at = len(head)
    if not frame.startswith(head) or at + 4 > end:
        return None
    digits, stop = _usual_id(frame, at + 1, end)
    if not digits or frame[at] != 0x0A:
        return None
    payload = b""
    if stop < end and frame[stop] == 0x12:
        first, stop = read_length(frame, stop + 1, end)
        payload = frame[first:stop]
    properties = _repeated(frame, stop, end) or _entries(frame[stop:end])
    return None if properties is None else Consumed(int(digits, 36), payload, properties)


def _head_of(size: int) -> bytes:
    """What stands before the message in a ConsumeResponse of `size` bytes; remembered."""
    inner_bytes = size - 1 - len(varint(size))
    # A length in front of a length: the first guess may be a byte too long.
    while 1 + len(varint(inner_bytes)) + inner_bytes < size:
        inner_bytes += 1
    message_bytes = inner_bytes - 3 - len(varint(inner_bytes))
    while 3 + len(varint(message_bytes)) + message_bytes < inner_bytes:
        message_bytes += 1
    if len(_heads) >= _REMEMBERED_MAX:
        _heads.clear()
    head = b"".join((b"\x12", varint(inner_bytes), b"\x08\x01\x12", varint(message_bytes)))
    return _heads.setdefault(size, head)


def _repeated(frame: bytes, first: int, end: int) -> dict[str, str] | None:
    """The properties, where all but the time tick stand in many messages; None for any other.

    To find the tick and look up what is round it costs less than to read every entry.
    """
    at = frame.rfind(_TICK_KEY, first)
    if at < first + 2 or at + 7 > end:
        return None
    stop = at + 7 + frame[at + 6]
    if stop > end or stop - at > 127 or frame[at - 2] != 0x1A or frame[at - 1] != stop - at:
        return None
    # Whole entries on both sides, so these bytes are no part of another entry's value.
    around = frame[first : at - 2], frame[stop:end]
    shared = _remembered.get(around)
    if shared is None:
        shared = _remember(around)
    if shared is None or not (text := frame[at + 7 : stop]).isascii():
        return None
    # The tick last: an earlier entry with its key does not count.
    return {**shared, "_tt": text.decode("ascii")}


def _remember(around: tuple[bytes, bytes]) -> dict[str, str] | None:
    before, behind = around
    if len(before) + len(behind) > _REMEMBERED_BYTES_MAX:
        return None
    try:
        first, last = _entries(before), _entries(behind)
    except Malformed:
        return None  # what looked like the tick stands inside of a value
    if first is None or last is None:
        return None
    shared = first | last
    # Others would fill the memory with values that never come again.
    if not shared.keys() <= _REPEATED_KEYS:
        return None
    if len(_remembered) >= _REMEMBERED_MAX:
        _remembered.clear()
    _remembered[around] = shared
    return shared


def _entries(region: bytes) -> dict[str, str] | None:
    """All properties of a region of entries alone; None when there is something else."""
    properties: dict[str, str] = {}
    position, end = 0, len(region)
    while position < end:
        # Unknown, a payload, or an id in parts: the general path skips or joins these.
        if region[position] != 0x1A:
            return None
        start, position = read_length(region, position + 1, end)
        key, value = read_entry(region[start:position])
        properties[key] = value
    return properties


def _read_any(data: bytes) -> Consumed:
    id_bytes = payload = b""
    properties: dict[str, str] = {}
    for tag, first, stop in fields(data, 0, len(data)):
        match tag:
            case 0x0A:
                id_bytes += data[first:stop]
            case 0x12:
                payload = data[first:stop]
            case 0x1A:
                key, value = read_entry(data[first:stop])
                properties[key] = value
            case _:
                pass
    return Consumed(_message_id(id_bytes), payload, properties)


def _message_id(data: bytes) -> int:
    """The number in a `common.MessageID`."""
    length = len(data) - 4
    # The shape this server writes: text, then WAL_name = RocksMQ.
    if length > 0 and data[0] == 0x0A and data[1] == length and data[-2:] == b"\x10\x01":
        return rocksmq_id(data[2:-2].decode("ascii", "replace"))
    text, wal = "", 0
    for tag, first, stop in fields(data, 0, len(data)):
        if tag == 0x0A:
            text = data[first:stop].decode("ascii", "replace")
        elif tag == 0x10:
            wal = first
    if wal not in _BASE36_WALS:
        # Ids of other logs have other text forms: decoded as base 36 they would be wrong positions.
        raise Malformed(f"a message id of log kind {wal}, which is not RocksMQ's", 0)
    return rocksmq_id(text)


def _created(data: bytes) -> Created:
    wal_name, server_id = "", 0
    for tag, first, stop in fields(data, 0, len(data)):
        if tag == 0x0A:
            wal_name = data[first:stop].decode("utf-8", "replace")
        elif tag == 0x10:
            server_id = signed(first)
    return Created(wal_name, server_id)


def _produce_answer(data: bytes) -> Produced | ProduceFailed:
    request_id = kind = 0
    content = b""
    for tag, first, stop in fields(data, 0, len(data)):
        if tag == 0x08:
            request_id = signed(first)
        elif tag in (0x12, 0x1A):
            content = content + data[first:stop] if tag == kind else data[first:stop]
            kind = tag
    match kind:
        case 0x12:
            return _produced(request_id, content, 0, len(content))
        case 0x1A:
            error = read_streaming_error(content)
            return ProduceFailed(request_id, error.code, error.cause)
        case _:
            what = f"an answer to request {request_id} with neither result nor error"
            raise Malformed(what, 0)


def _produced(request_id: int, data: bytes, position: int, end: int) -> Produced:
    own = confirmed = txn_context = b""
    tick = 0
    for tag, first, stop in fields(data, position, end):
        match tag:
            case 0x0A:
                own += data[first:stop]
            case 0x10:
                tick = first
            case 0x1A:
                txn_context += data[first:stop]
            case 0x2A:
                confirmed += data[first:stop]
            case _:
                pass
    return Produced(request_id, _message_id(own), tick, _message_id(confirmed), txn_context)


def _vchannel_answer(data: bytes) -> VChannelCreated | VChannelRefused:
    answer: VChannelCreated | VChannelRefused = VChannelCreated(0)
    for tag, first, stop in fields(data, 0, len(data)):
        if tag == 0x08:
            answer = VChannelCreated(signed(first))
        elif tag == 0x12:
            error = read_streaming_error(data[first:stop])
            answer = VChannelRefused(error.code, error.cause)
    return answer


def _last_field(data: bytes) -> tuple[int, bytes]:
    """The oneof member that counts: the last; parts of the same one are joined."""
    kind, content = 0, b""
    for tag, first, stop in fields(data, 0, len(data)):
        # Members of a oneof replace each other; parts of one embedded message are merged.
        if tag & 7 == 2 and tag < 0x40:
            content = content + data[first:stop] if tag == kind else data[first:stop]
            kind = tag
    return kind, content


def _joined(data: bytes, wanted: int) -> bytes:
    parts = fields(data, 0, len(data))
    return b"".join(data[first:stop] for tag, first, stop in parts if tag == wanted)
