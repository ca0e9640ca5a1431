"""The broadcast header property `_bh`; copies of a broadcast are recognised by the id in it."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from schemas.encoding.fields import few_fields, field
from schemas.encoding.varint import Malformed, varint
from schemas.generated.milvus.proto import messages
from schemas.message_bytes import parsed_bounded
from schemas.properties.keys import BROADCAST, BadProperty

_ID_TAG: Final = 0x08
_VCHANNEL_TAG: Final = 0x12
_KEY_TAG: Final = 0x1A
_SYNC_TAG: Final = 0x20
_DOMAIN_TAG: Final = 0x08
_NAME_TAG: Final = 0x12
_SHARED_TAG: Final = 0x18
_REMEMBERED_MAX: Final = 128 * 1024
"""Of a text; that of a broadcast to 2,048 vchannels is shorter."""


@dataclass(frozen=True, slots=True)
class HeaderKey:
    """One resource key; `domain` is a number of `messages.ResourceDomain`, or any other."""

    domain: int
    key: str
    shared: bool


@dataclass(frozen=True, slots=True)
class BroadcastHeader:
    """`messages.BroadcastHeader`. In a request the id has no meaning."""

    broadcast_id: int
    vchannels: tuple[str, ...]
    keys: tuple[HeaderKey, ...] = ()
    ack_sync_up: bool = False


def write_broadcast_header(header: BroadcastHeader) -> str:
    """The text of the property."""
    # By hand: the generated code takes a tenth of the time that a change of definitions takes.
    parts = [_number(_ID_TAG, header.broadcast_id)]
    parts += [field(_VCHANNEL_TAG, it.encode()) for it in header.vchannels]
    parts += [field(_KEY_TAG, _key(it)) for it in header.keys]
    parts.append(_number(_SYNC_TAG, header.ack_sync_up))
    return BROADCAST.encode(b"".join(parts))


def _key(it: HeaderKey) -> bytes:
    name = field(_NAME_TAG, it.key.encode()) if it.key else b""
    return _number(_DOMAIN_TAG, it.domain) + name + _number(_SHARED_TAG, it.shared)


def _number(tag: int, value: int) -> bytes:
    """Nothing for 0, as in every message of proto3."""
    return varint(tag) + varint(value) if value else b""


def read_broadcast_id(text: str) -> int:
    """Only the id, for readers who ask at each copy; 0 when it has none. Raises BadProperty.

    All copies of a broadcast have the same text.
    """
    return (_remembered if len(text) <= _REMEMBERED_MAX else _read_id)(text)


def _read_id(text: str) -> int:
    data = BROADCAST.decode(text)
    try:
        ids = [first for tag, first, _ in few_fields(data, 0, len(data)) if tag == _ID_TAG]
    except Malformed as error:
        raise BadProperty(BROADCAST.key, text, f"no BroadcastHeader ({error})") from error
    return ids[-1] if ids else 0


def read_broadcast_header(text: str) -> BroadcastHeader:
    """The header in a property's text. Raises BadProperty."""
    data = BROADCAST.decode(text)
    try:
        found = parsed_bounded(messages.BroadcastHeader, data)
    except Exception as error:
        raise BadProperty(BROADCAST.key, text, f"no BroadcastHeader ({error})") from error
    return BroadcastHeader(
        found.broadcast_id,
        tuple(found.vchannels),
        tuple(HeaderKey(int(it.domain), it.key, it.shared) for it in found.Resource_keys),
        found.ack_sync_up,
    )


_remembered = lru_cache(maxsize=256)(_read_id)
