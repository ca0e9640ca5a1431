"""Entries of the properties map: each is a small protobuf message with key = 1 and value = 2.

A client repeats the same few entries in every message, so entries with steady keys are cached by
their bytes: reading one is then a slice and a lookup.
"""

from functools import lru_cache
from typing import Final

from schemas.encoding.fields import few_fields
from schemas.encoding.varint import Malformed, varint

STEADY_KEYS: Final = frozenset({"_t", "_v", "_h", "_vc", "_wt", "_lcs"})
"""Keys whose values a connection repeats."""

_REMEMBERED_MAX: Final = 4096
_REMEMBERED_BYTES_MAX: Final = 256
_remembered: dict[bytes, tuple[str, str]] = {}


def read_entry(content: bytes) -> tuple[str, str]:
    """Key and value of one entry; what is missing is the empty string, unknown fields are skipped.

    Raises Malformed when the bytes break the format or are not UTF-8, which proto3 strings must be.
    """
    pair = _remembered.get(content)
    if pair is None:
        pair = _read_short(content) or _read_any(content)
        # Other keys would fill the memory with values that never come again.
        if pair[0] in STEADY_KEYS and len(content) <= _REMEMBERED_BYTES_MAX:
            _remember(content, pair)
    return pair


def write_entry(tag: bytes, key: str, value: str) -> bytes:
    """One entry as a field with this one-byte tag; an empty value is written too, as Go does."""
    if key in STEADY_KEYS and len(value) <= _REMEMBERED_BYTES_MAX:
        return _write_steady(tag, key, value)
    return _write(tag, key, value)


def _read_short(content: bytes) -> tuple[str, str] | None:
    """The usual shape, key then value, each shorter than 128 bytes; None for any other."""
    end = len(content)
    if end < 4 or content[0] != 0x0A:
        return None
    middle = 2 + content[1]
    if middle + 2 > end or content[middle] != 0x12:
        return None
    # A first length byte of 128 or more is refused here too: it makes the parts too long.
    if content[middle + 1] > 127 or middle + 2 + content[middle + 1] != end or content[1] > 127:
        return None
    return _text(content, 2, middle), _text(content, middle + 2, end)


def _read_any(content: bytes) -> tuple[str, str]:
    key = value = ""
    for tag, first, stop in few_fields(content, 0, len(content)):
        if tag == 0x0A:
            key = _text(content, first, stop)
        elif tag == 0x12:
            value = _text(content, first, stop)
    return key, value


def _text(data: bytes, start: int, stop: int) -> str:
    try:
        return data[start:stop].decode()
    except UnicodeDecodeError as error:
        raise Malformed("a property that is not UTF-8", start + error.start) from None


def _remember(content: bytes, pair: tuple[str, str]) -> None:
    if len(_remembered) >= _REMEMBERED_MAX:
        _remembered.clear()
    _remembered[content] = pair


@lru_cache(maxsize=_REMEMBERED_MAX)
def _write_steady(tag: bytes, key: str, value: str) -> bytes:
    return _write(tag, key, value)


def _write(tag: bytes, key: str, value: str) -> bytes:
    key_bytes, value_bytes = key.encode(), value.encode()
    key_length, value_length = varint(len(key_bytes)), varint(len(value_bytes))
    size = 2 + len(key_length) + len(key_bytes) + len(value_length) + len(value_bytes)
    return b"".join(
        (tag, varint(size), b"\x0a", key_length, key_bytes, b"\x12", value_length, value_bytes)
    )
