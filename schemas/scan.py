"""Scans produce requests: extracts what the broker needs and cuts out the stored form.

It never decodes a payload, and rejects a message only for its encoding, not for its contents. A
fast path handles the shape that every encoder produces, a general path everything else that
protobuf allows (fields in any order, repeated, unknown), with the same result.

The stored form is `payload` and `properties` of the Message with the field numbers that they have
in an ImmutableMessage. Unknown fields are dropped: with the field numbers of an ImmutableMessage
they could become an id, a payload or a property.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from schemas.encoding.base36 import read_base36
from schemas.encoding.entries import read_entry, write_entry
from schemas.encoding.fields import few_fields, fields, read_length
from schemas.encoding.varint import Malformed, read_varint, signed, varint

SERVER_KEYS: Final = ("_tt", "_lc", "_lcs", "_wt", "_np")
"""Properties that only a server sets; what a client sends under these keys is not stored."""

PROPERTIES_MAX: Final = 1024
"""Of one message, of which Milvus's have ten; each reader looks through them again."""

STORED_PAYLOAD: Final = b"\x12"
STORED_PROPERTY: Final = b"\x1a"

_REPEATED_KEYS: Final = frozenset({"_t", "_v", "_h", "_vc", "_tx"})
_REMEMBERED_MAX: Final = 1024
_REMEMBERED_BYTES_MAX: Final = 1024
_SERVER_KEYS: Final = frozenset(SERVER_KEYS)


class TooManyProperties(Malformed):
    """A message with more properties than a reader should have to look at."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"a message of more than {PROPERTIES_MAX} properties", offset)


class ScannedMessage(NamedTuple):
    """One message to append; what stands in its properties is reported, not judged.

    A named tuple, because one is made for every message: a frozen dataclass takes 3 times as long.
    """

    type: int
    """`_t`; 0 when absent, -1 when it is not a decimal number."""
    version: int
    """`_v`; 0 when absent, -1 when it is not a decimal number."""
    vchannel: str
    """`_vc`; empty when absent."""
    stored: bytes
    """The stored form."""
    size: int
    """Payload plus all keys and values, in bytes: the estimate Milvus uses."""
    barrier_tick: int
    """`_btt`; 0 when absent, -1 when it is not a base-36 number."""
    txn: str | None
    """`_tx` as it came; None when absent."""
    broadcast: bool
    """`_bh` is there."""
    replicate: bool
    """`_rh` is there."""
    has_header: bool
    """`_h` is there, be it empty."""
    stripped: tuple[str, ...]
    """Keys of the server that the client sent, and that are not in `stored`."""


class ScannedProduce(NamedTuple):
    """One append; `request_id` is the client's own number for it."""

    request_id: int
    message: ScannedMessage


@dataclass(frozen=True, slots=True)
class Close:
    """The producer will send nothing more."""


_remembered: dict[bytes, ScannedMessage] = {}
"""Bytes of a whole properties map to a message without payload: same bytes, same facts."""


def scan_produce_request(frame: bytes) -> ScannedProduce | Close | None:
    """What a ProduceRequest asks for; None when it asks for something this server does not know.

    Raises Malformed when the bytes are not a ProduceRequest.
    """
    request_id, first = usual_request(frame)
    if first:
        return ScannedProduce(request_id, scan_message(frame, first, len(frame)))
    return _scan_any_request(frame)


def usual_request(frame: bytes) -> tuple[int, int]:
    """Request id and start of the message, which takes the rest, as every encoder writes them.

    A start of 0 means another shape. Raises Malformed as `scan_produce_request` does.
    """
    end = len(frame)
    if end > 4 and frame[0] == 0x0A:
        start, stop = read_length(frame, 1, end)
        if stop == end and frame[start] == 0x08:
            request_id, at = read_varint(frame, start + 1, end)
            if at < end and frame[at] == 0x12:
                first, last = read_length(frame, at + 1, end)
                if last == end:
                    return signed(request_id), first
    return 0, 0


def request_id_at(beginning: bytes) -> int | None:
    """The request id of a ProduceRequest of which only the beginning is here.

    None when it does not stand in front, where every encoder puts it.
    """
    end = len(beginning)
    try:
        if beginning[:1] == b"\x0a":
            _, at = read_varint(beginning, 1, end)
            if beginning[at : at + 1] == b"\x08":
                return signed(read_varint(beginning, at + 1, end)[0])
    except Malformed:
        pass
    return None


def scan_message(data: bytes, start: int, end: int) -> ScannedMessage:
    """The `milvus.proto.messages.Message` in `data[start:end]`. Raises Malformed."""
    first, stop = payload_at(data, start, end)
    facts = facts_of(data[stop:end])
    if facts is None:
        return _scan_any_message(data[start:end])
    if first == stop:
        return facts
    return facts._replace(
        stored=stored_with(data[first:stop], facts), size=stop - first + facts.size
    )


def payload_at(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Where a payload stands that is the first field of the message; where none is, its start."""
    if start < end and data[start] == 0x0A:
        return read_length(data, start + 1, end)
    return start, start


def facts_of(region: bytes) -> ScannedMessage | None:
    """The message that these bytes make without payload; None when they are not plain entries.

    The same object for bytes that a producer repeats: its messages mostly differ in the payload
    alone. Raises Malformed.
    """
    return _remembered.get(region) or _read_region(region)


def stored_with(payload: bytes, facts: ScannedMessage) -> bytes:
    """The stored form of a message with these facts and a payload, which is not empty."""
    return b"".join((STORED_PAYLOAD, varint(len(payload)), payload, facts.stored))


def stored_properties(stored: bytes) -> dict[str, str]:
    """All properties of a stored form. Raises Malformed."""
    entries = fields(stored, 0, len(stored))
    return dict([read_entry(stored[first:stop]) for tag, first, stop in entries if tag == 0x1A])


def _read_region(region: bytes) -> ScannedMessage | None:
    stored = bytearray(region)
    properties: dict[str, str] = {}
    position, end, count = 0, len(region), 0
    while position < end:
        if region[position] != 0x12:
            return None
        start, stop = read_length(region, position + 1, end)
        key, value = read_entry(region[start:stop])
        properties[key] = value
        # Properties are field 2 of a Message and field 3 of an ImmutableMessage: one byte differs.
        stored[position] = 0x1A
        position = stop
        count += 1
        if count > PROPERTIES_MAX:
            raise TooManyProperties(position)
    # A key that stands twice, or one of the server's, is not stored as it came.
    if count != len(properties) or not _SERVER_KEYS.isdisjoint(properties):
        return None
    facts = _message(properties, bytes(stored), ())
    if end <= _REMEMBERED_BYTES_MAX and properties.keys() <= _REPEATED_KEYS:
        _remember(region, facts)
    return facts


def _remember(region: bytes, facts: ScannedMessage) -> None:
    if len(_remembered) >= _REMEMBERED_MAX:
        _remembered.clear()
    _remembered[region] = facts


def _scan_any_request(frame: bytes) -> ScannedProduce | Close | None:
    """Parts of one embedded message merge by being joined, which is how protobuf defines it."""
    found: bytes | Close | None = None
    for tag, first, stop in few_fields(frame, 0, len(frame)):
        if tag == 0x0A:
            found = (found if isinstance(found, bytes) else b"") + frame[first:stop]
        elif tag == 0x12:
            found = Close()
    return _scan_any_produce(found) if isinstance(found, bytes) else found


def _scan_any_produce(data: bytes) -> ScannedProduce:
    request_id = 0
    message: list[bytes] = []
    for tag, first, stop in few_fields(data, 0, len(data)):
        if tag == 0x08:
            request_id = signed(first)
        elif tag == 0x12:
            message.append(data[first:stop])
    joined = b"".join(message)
    return ScannedProduce(request_id, scan_message(joined, 0, len(joined)))


def _scan_any_message(data: bytes) -> ScannedMessage:
    """Reads everything and writes the stored form anew, without what must not be in it."""
    payload = b""
    properties: dict[str, str] = {}
    for tag, first, stop in few_fields(data, 0, len(data)):
        if tag == 0x0A:
            payload = data[first:stop]
        elif tag == 0x12:
            key, value = read_entry(data[first:stop])
            properties[key] = value
            if len(properties) > PROPERTIES_MAX:
                raise TooManyProperties(stop)
    stripped = tuple(key for key in SERVER_KEYS if properties.pop(key, None) is not None)
    parts = [STORED_PAYLOAD, varint(len(payload)), payload] if payload else []
    parts += [write_entry(STORED_PROPERTY, key, value) for key, value in properties.items()]
    facts = _message(properties, b"".join(parts), stripped)
    return facts._replace(size=facts.size + len(payload))


def _message(
    properties: Mapping[str, str], stored: bytes, stripped: tuple[str, ...]
) -> ScannedMessage:
    size = len("".join((*properties, *properties.values())).encode())
    return ScannedMessage(
        type=_decimal(properties.get("_t")),
        version=_decimal(properties.get("_v")),
        vchannel=properties.get("_vc", ""),
        stored=stored,
        size=size,
        barrier_tick=_tick(properties.get("_btt")),
        txn=properties.get("_tx"),
        broadcast="_bh" in properties,
        replicate="_rh" in properties,
        has_header="_h" in properties,
        stripped=stripped,
    )


def _decimal(text: str | None) -> int:
    if text is None:
        return 0
    # ASCII only: `isdigit` and `int` accept digits of other scripts, which Go's parser refuses.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 11 else -1


def _tick(text: str | None) -> int:
    if text is None:
        return 0
    try:
        return read_base36(text)
    except Malformed:
        return -1
