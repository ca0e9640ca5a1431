"""Scans and builds the `tidemark.v1.Log` messages that carry batches, on both sides, by position.

It never looks into a body or checks the sizes against it. Fields may come in any order, numbers may
be packed or not, unknown fields are skipped.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from schemas.encoding.entries import write_entry
from schemas.encoding.fields import few_fields, field, fields
from schemas.encoding.varint import Malformed, signed, varint
from schemas.status import read_streaming_error

PROPERTY: Final = b"\x1a"
"""The tag of a shared property, in a request, in what is stored, and in what a reader gets."""
OWN: Final = "_own"
"""The shared property of a batch whose messages have properties of their own. A server that does
not know these refuses reserved names, so it never stores the batch without them."""
WHOLE: Final = "_whole"
"""The shared property of a batch that is a transaction of its own."""
NUMBERS_MAX: Final = 262_144
"""In one list of an AppendRequest: more than a batch may have messages, so that one with a few too
many is refused alone."""
STORED: Final = 1
"""`Form.STORED`; 0 is `Form.PAYLOADS`."""
ARROW: Final = 3
"""`Codec.ARROW`."""
ARROW_ROWS: Final = 2
"""`Form.ARROW_ROWS`."""


class ScannedBatch(NamedTuple):
    """An AppendRequest as received."""

    vchannel: str = ""
    sizes: tuple[int, ...] = ()
    properties: bytes = b""
    """Entries with their tags, as they are stored."""
    type: int = 0
    producer: str = ""
    sequence: int = 0
    durability: int = 0
    codec: int = 0
    key_sizes: tuple[int, ...] = ()
    keys: bytes = b""
    body: bytes = b""
    raw: int = 0
    """1: store it although the collection of its vchannel was dropped."""
    own_sizes: tuple[int, ...] = ()
    own: bytes = b""
    """The properties of each message, as entries with their tags, one message after the other."""


class Landed(NamedTuple):
    """A batch has its place in the log; these are of its first message."""

    message_id: int
    tick: int
    last_confirmed_id: int
    durability: int = 0
    """The durability it has; 0 is `Durability.FSYNC`."""


class NotLanded(NamedTuple):
    """A batch was refused; `code` is a StreamingCode."""

    code: int
    cause: str
    expected_sequence: int
    dropped: bool = False
    """The collection of its vchannel was dropped."""
    retry_ms: int = 0
    """It is worth to come again after this; 0: the server does not say."""


class Position(NamedTuple):
    """A ReadPosition: everything below `next_id` and up to `tick` has been read."""

    next_id: int
    tick: int
    open_id: int
    inside: int
    purged: int = 0


class ReadBatch(NamedTuple):
    """A ReadBatch as received; only that of a transaction has `ids`."""

    vchannel: str = ""
    sizes: tuple[int, ...] = ()
    properties: bytes = b""
    message_id: int = 0
    tick: int = 0
    last_confirmed_id: int = 0
    type: int = 0
    form: int = 0
    codec: int = 0
    key_sizes: tuple[int, ...] = ()
    keys: bytes = b""
    first: int = 0
    end: int = 0
    ids: tuple[int, ...] = ()
    body: bytes = b""


class ReadAnswer(NamedTuple):
    """A ReadResponse; all of it may be missing."""

    batch: ReadBatch | None
    closed_tick: int
    position: Position | None
    end: bool


# ---- Append ---------------------------------------------------------------------------------


def append_request(batch: ScannedBatch, body: Sequence[bytes]) -> bytes:
    """An AppendRequest without its number, which goes in front; its body given in parts."""
    return b"".join(
        (
            field(0x0A, batch.vchannel.encode()),
            _packed(b"\x12", batch.sizes),
            batch.properties,
            _number(b"\x20", batch.type),
            _number(b"\x38", batch.durability),
            _number(b"\x48", batch.codec),
            _packed(b"\x52", batch.key_sizes),
            field(0x5A, batch.keys) if batch.keys else b"",
            _number(b"\x60", batch.raw),
            _packed(b"\x6a", batch.own_sizes),
            field(0x72, batch.own) if batch.own else b"",
            b"\x7a",
            varint(sum(map(len, body))),
            *body,
        )
    )


def stamp(producer: str, sequence: int) -> bytes:
    """What goes in front of an AppendRequest to say who numbered it, and how."""
    return _numbered_by(producer) + _number(b"\x30", sequence)


@lru_cache(maxsize=64)
def _numbered_by(producer: str) -> bytes:
    return field(0x2A, producer.encode())


def shared_properties(properties: Iterable[tuple[str, str]]) -> bytes:
    """Entries as a batch and the log have them."""
    return b"".join([write_entry(PROPERTY, key, value) for key, value in properties])


def scan_append_request(frame: bytes) -> ScannedBatch:
    """The batch in a frame. Raises Malformed, also for FEW_MAX fields and NUMBERS_MAX."""
    found: dict[str, object] = {}
    properties: list[bytes] = []
    lists: dict[str, list[bytes]] = {}
    for tag, first, stop in few_fields(frame, 0, len(frame)):
        match tag:
            case 0x1A:
                properties.append(field(0x1A, frame[first:stop]))
            case 0x0A | 0x2A:
                found[_TEXTS[tag]] = _text(frame, first, stop)
            # Packed or one by one: protobuf lets a writer choose, and a reader must take both.
            case 0x12 | 0x15 | 0x52 | 0x55 | 0x6A | 0x6D:
                lists.setdefault(_LISTS[tag], []).append(frame[first:stop])
            case 0x20 | 0x30 | 0x38 | 0x48 | 0x60:
                found[_NUMBERS[tag]] = signed(first)
            case 0x5A | 0x72 | 0x7A:
                found[_BYTES[tag]] = frame[first:stop]
            case _:
                continue
    found |= {name: _numbers(b"".join(parts)) for name, parts in lists.items()}
    return ScannedBatch(properties=b"".join(properties), **found)  # type: ignore[arg-type]


def append_landed(message_id: int, tick: int, last_confirmed_id: int, durability: int = 0) -> bytes:
    """The AppendResponse with the position of a batch and the durability it has."""
    return b"".join(
        (
            b"\x08",
            varint(message_id),
            b"\x10",
            varint(tick),
            b"\x18",
            varint(last_confirmed_id),
            _number(b"\x20", durability),
        )
    )


def append_refused(
    code: int,
    cause: str,
    expected_sequence: int = 0,
    *,
    dropped: bool = False,
    retry_ms: int = 0,
) -> bytes:
    """The AppendResponse that refuses a batch."""
    error = b"\x08" + varint(code) + field(0x12, cause.encode("utf-8", "replace"))
    told = _number(b"\x30", expected_sequence) + _number(b"\x38", dropped)
    return field(0x2A, error) + told + _number(b"\x48", retry_ms)


def scan_append_response(frame: bytes) -> Landed | NotLanded | None:
    """The outcome of a batch; None for the empty greeting. Raises Malformed."""
    numbers = {0x08: 0, 0x10: 0, 0x18: 0, 0x20: 0, 0x30: 0, 0x38: 0, 0x48: 0}
    error: tuple[int, int] | None = None
    for tag, first, stop in fields(frame, 0, len(frame)):
        if tag == 0x2A:
            error = first, stop
        elif tag in numbers:
            numbers[tag] = first
    if error is not None:
        told = read_streaming_error(frame[error[0] : error[1]])
        dropped = bool(numbers[0x38])
        return NotLanded(
            told.code, told.cause, signed(numbers[0x30]), dropped, max(0, signed(numbers[0x48]))
        )
    # The greeting of the stream, which is an empty message.
    if not frame:
        return None
    if not numbers[0x08]:
        raise Malformed("an answer to a batch without an id", 0)
    return Landed(numbers[0x08], numbers[0x10], numbers[0x18], numbers[0x20])


# ---- Read -----------------------------------------------------------------------------------


def read_response(
    batch: Sequence[bytes] = (),
    closed_tick: int = 0,
    position: Position | None = None,
    *,
    end: bool = False,
) -> list[bytes]:
    """A ReadResponse in parts, so that the body, in the parts of `read_batch`, is not copied."""
    parts: list[bytes] = []
    if batch:
        parts += [b"\x0a", varint(sum(map(len, batch))), *batch]
    parts.append(_number(b"\x10", closed_tick))
    if position is not None:
        parts.append(field(0x1A, _position(position)))
    if end:
        parts.append(b"\x20\x01")
    return parts


def read_batch(batch: ReadBatch) -> list[bytes]:
    """A ReadBatch in parts."""
    return [
        field(0x0A, batch.vchannel.encode()) if batch.vchannel else b"",
        _packed(b"\x12", batch.sizes),
        batch.properties,
        _number(b"\x20", batch.message_id),
        _number(b"\x28", batch.tick),
        _number(b"\x30", batch.last_confirmed_id),
        _number(b"\x38", batch.type),
        _number(b"\x40", batch.form),
        _number(b"\x48", batch.codec),
        _packed(b"\x52", batch.key_sizes),
        field(0x5A, batch.keys) if batch.keys else b"",
        _number(b"\x60", batch.first),
        _number(b"\x68", batch.end),
        field(0x72, _longs(len(batch.ids)).pack(*batch.ids)) if batch.ids else b"",
        b"\x7a" + varint(len(batch.body)),
        batch.body,
    ]


def scan_read_response(frame: bytes) -> ReadAnswer:
    """What a ReadResponse says. Raises Malformed."""
    batch: ReadBatch | None = None
    position: Position | None = None
    closed_tick, end = 0, False
    for tag, first, stop in fields(frame, 0, len(frame)):
        match tag:
            case 0x0A:
                batch = scan_batch(frame, first, stop)
            case 0x10:
                closed_tick = first
            case 0x1A:
                position = _scan_position(frame, first, stop)
            case 0x20:
                end = bool(first)
            case _:
                continue
    return ReadAnswer(batch, closed_tick, position, end)


def scan_batch(frame: bytes, start: int, end: int) -> ReadBatch:
    """The ReadBatch at this place of a frame. Raises Malformed."""
    found: dict[str, object] = {}
    properties: list[bytes] = []
    for tag, first, stop in fields(frame, start, end):
        match tag:
            case 0x1A:
                properties.append(field(0x1A, frame[first:stop]))
            case 0x0A:
                found["vchannel"] = _text(frame, first, stop)
            case 0x12 | 0x52:
                found[_LISTS[tag]] = _numbers(frame[first:stop])
            case 0x5A | 0x7A:
                found[_BYTES[tag]] = frame[first:stop]
            case 0x72:
                if (stop - first) % 8:
                    raise Malformed(f"ids of {stop - first} bytes, not a multiple of 8", first)
                found["ids"] = _longs((stop - first) // 8).unpack(frame[first:stop])
            case _ if tag in _READ_NUMBERS:
                found[_READ_NUMBERS[tag]] = first
            case _:
                continue
    return ReadBatch(properties=b"".join(properties), **found)  # type: ignore[arg-type]


def _position(at: Position) -> bytes:
    return b"".join(map(_number, (b"\x08", b"\x10", b"\x18", b"\x20", b"\x28"), at))


def _scan_position(frame: bytes, start: int, end: int) -> Position:
    numbers = {0x08: 0, 0x10: 0, 0x18: 0, 0x20: 0, 0x28: 0}
    for tag, first, _ in fields(frame, start, end):
        if tag in numbers:
            numbers[tag] = first
    return Position(*numbers.values())


# ---- pieces ---------------------------------------------------------------------------------

_TEXTS: Final = {0x0A: "vchannel", 0x2A: "producer"}
_LISTS: Final = {
    0x12: "sizes",
    0x15: "sizes",
    0x52: "key_sizes",
    0x55: "key_sizes",
    0x6A: "own_sizes",
    0x6D: "own_sizes",
}
_NUMBERS: Final = {
    0x20: "type",
    0x30: "sequence",
    0x38: "durability",
    0x48: "codec",
    0x60: "raw",
}
_BYTES: Final = {0x5A: "keys", 0x72: "own", 0x7A: "body"}
_READ_NUMBERS: Final = {
    0x20: "message_id",
    0x28: "tick",
    0x30: "last_confirmed_id",
    0x38: "type",
    0x40: "form",
    0x48: "codec",
    0x60: "first",
    0x68: "end",
}


def _number(tag: bytes, value: int) -> bytes:
    """A number that proto3 leaves out when it is 0."""
    return tag + varint(value) if value else b""


def _packed(tag: bytes, numbers: tuple[int, ...]) -> bytes:
    if not numbers:
        return b""
    return b"".join((tag, varint(4 * len(numbers)), _words(len(numbers)).pack(*numbers)))


def _numbers(packed: bytes) -> tuple[int, ...]:
    if len(packed) % 4:
        raise Malformed(f"{len(packed)} bytes of packed numbers, four each", 0)
    if len(packed) > 4 * NUMBERS_MAX:
        raise Malformed(f"a list of {len(packed) // 4} numbers; at most {NUMBERS_MAX}", 0)
    return _words(len(packed) // 4).unpack(packed)


@lru_cache(maxsize=1024)
def _words(count: int) -> Struct:
    return Struct(f"<{count}I")


@lru_cache(maxsize=64)
def _longs(count: int) -> Struct:
    return Struct(f"<{count}Q")


def _text(data: bytes, start: int, stop: int) -> str:
    try:
        return data[start:stop].decode()
    except UnicodeDecodeError as error:
        raise Malformed("text that is not UTF-8", start + error.start) from None
