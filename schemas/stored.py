"""Takes the stored form of a message apart and builds it, outside the hot streams."""

from typing import Final

from schemas.encoding.base64_text import base64_text, read_base64
from schemas.encoding.entries import read_entry, write_entry
from schemas.encoding.fields import fields

_HEADER: Final = "_h"
_PAYLOAD_TAG: Final = 0x12
_ENTRY_TAG: Final = 0x1A
_PROPERTY: Final = b"\x1a"


def payload_of(stored: bytes) -> bytes:
    """The payload; empty when there is none. Raises Malformed."""
    parts = [
        stored[first:stop]
        for tag, first, stop in fields(stored, 0, len(stored))
        if tag == _PAYLOAD_TAG
    ]
    # In protobuf the last value of a field that is given twice holds.
    return parts[-1] if parts else b""


def taken_apart(stored: bytes) -> tuple[dict[str, str], bytes]:
    """All properties, and the payload, in one pass. Raises Malformed."""
    properties: dict[str, str] = {}
    payload = b""
    for tag, first, stop in fields(stored, 0, len(stored)):
        if tag == _ENTRY_TAG:
            key, value = read_entry(stored[first:stop])
            properties[key] = value
        elif tag == _PAYLOAD_TAG:
            payload = stored[first:stop]
    return properties, payload


def size_of(stored: bytes) -> int:
    """Payload plus all keys and values, in bytes: the estimate Milvus uses. Raises Malformed."""
    size = len(payload_of(stored))
    for tag, first, stop in fields(stored, 0, len(stored)):
        if tag == _ENTRY_TAG:
            key, value = read_entry(stored[first:stop])
            size += len(key.encode()) + len(value.encode())
    return size


def header_of(stored: bytes) -> bytes:
    """The bytes of the header message; empty when it is empty or missing. Raises Malformed."""
    text = ""
    for tag, first, stop in fields(stored, 0, len(stored)):
        if tag == _ENTRY_TAG:
            key, value = read_entry(stored[first:stop])
            if key == _HEADER:
                text = value
    return read_base64(text)


def with_header(stored: bytes, header: bytes) -> bytes:
    """The same message with this header; whatever else it holds is kept. Raises Malformed."""
    parts: list[bytes] = []
    kept = at = 0
    for tag, first, stop in fields(stored, 0, len(stored)):
        if tag == _ENTRY_TAG and read_entry(stored[first:stop])[0] == _HEADER:
            parts.append(stored[kept:at])
            kept = stop
        at = stop
    parts.append(stored[kept:])
    parts.append(write_entry(_PROPERTY, _HEADER, base64_text(header)))
    return b"".join(parts)


def stored_form(kind: int, version: int, vchannel: str, header: bytes) -> bytes:
    """A message without payload, as a producer's would be stored."""
    properties = {
        "_t": str(kind),
        "_v": str(version),
        "_h": base64_text(header),
        "_vc": vchannel,
    }
    return b"".join([write_entry(_PROPERTY, key, value) for key, value in properties.items()])
