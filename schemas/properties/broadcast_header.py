"""The broadcast header property `_bh`; copies of a broadcast are recognised by the id in it."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from schemas.encoding.fields import fields
from schemas.encoding.varint import Malformed
from schemas.generated.milvus.proto import messages
from schemas.properties.keys import BROADCAST, BadProperty

_ID_TAG: Final = 0x08


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
    keys = [
        messages.ResourceKey(
            domain=messages.ResourceDomain(it.domain), key=it.key, shared=it.shared
        )
        for it in header.keys
    ]
    encoded = messages.BroadcastHeader(
        broadcast_id=header.broadcast_id,
        vchannels=list(header.vchannels),
        Resource_keys=keys,
        ack_sync_up=header.ack_sync_up,
    )
    return BROADCAST.encode(bytes(encoded))


@lru_cache(maxsize=256)
def read_broadcast_id(text: str) -> int:
    """Only the id, for readers who ask at each copy; 0 when it has none. Raises BadProperty.

    All copies of a broadcast have the same text.
    """
    data = BROADCAST.decode(text)
    try:
        ids = [first for tag, first, _ in fields(data, 0, len(data)) if tag == _ID_TAG]
    except Malformed as error:
        raise BadProperty(BROADCAST.key, text, f"no BroadcastHeader ({error})") from error
    return ids[-1] if ids else 0


def read_broadcast_header(text: str) -> BroadcastHeader:
    """The header in a property's text. Raises BadProperty."""
    data = BROADCAST.decode(text)
    try:
        for _ in fields(data, 0, len(data)):
            pass  # the generated code takes a message that is cut off for a whole one
        found = messages.BroadcastHeader.parse(data)
    except Exception as error:
        raise BadProperty(BROADCAST.key, text, f"no BroadcastHeader ({error})") from error
    return BroadcastHeader(
        found.broadcast_id,
        tuple(found.vchannels),
        tuple(HeaderKey(int(it.domain), it.key, it.shared) for it in found.Resource_keys),
        found.ack_sync_up,
    )
