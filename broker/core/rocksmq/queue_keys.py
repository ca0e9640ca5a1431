"""Keys and values of the embedded queue in an ordered store.

`meta/` and `data/` stand for the two stores of the original; what follows are its keys. An id has
eight bytes, big-endian, so keys are ordered as ids are, however large they grow.
"""

from dataclasses import dataclass

META = b"meta/"
DATA = b"data/"
AFTER_SLASH = b"0"
"""The byte after '/': ends the range of a prefix that ends in '/'."""

META_END = b"meta" + AFTER_SLASH
ID_BOUND_KEY = META + b"id_bound_ms"
ID_BYTES = 8


def data_key(channel: str, msg_id: int) -> bytes:
    """Of a message."""
    return data_prefix(channel) + msg_id.to_bytes(ID_BYTES, "big")


def data_prefix(channel: str) -> bytes:
    """Of all messages of a channel; ends in '/', so no other channel's name begins with it."""
    return DATA + channel.encode() + b"/"


def data_end(channel: str) -> bytes:
    """Above all messages of a channel."""
    return DATA + channel.encode() + AFTER_SLASH


def id_of(key: bytes) -> int:
    """The id of a message, of its key."""
    return int.from_bytes(key[-ID_BYTES:], "big")


def channel_key(channel: str, field: str) -> bytes:
    """`begin_id`, `end_id` or `open_bytes` of a channel."""
    return META + f"{channel}/{field}".encode()


def page_key(channel: str, end_id: int) -> bytes:
    """Of a full page, by its last id."""
    return META + f"{channel}/page/{end_id:020d}".encode()


def position_key(group: str, channel: str) -> bytes:
    """Of the position of a group on a channel."""
    return META + f"{group}/{channel}/current_id".encode()


def group_key(group: str) -> bytes:
    """Of a group that was made without a channel."""
    return META + f"{group}/group".encode()


def number(value: int) -> bytes:
    """A stored number."""
    return str(value).encode()


@dataclass(frozen=True, slots=True)
class ChannelField:
    """`begin_id`, `end_id` or `open_bytes` of a channel."""

    channel: str
    field: str


@dataclass(frozen=True, slots=True)
class PageField:
    """A full page of a channel, by its last id."""

    channel: str
    end_id: int


@dataclass(frozen=True, slots=True)
class PositionField:
    """The position of a group on a channel."""

    group: str
    channel: str


@dataclass(frozen=True, slots=True)
class GroupField:
    """A group that was made without a channel."""

    group: str


MetaField = ChannelField | PageField | PositionField | GroupField


def parsed(key: bytes) -> MetaField | None:
    """What a key of the metadata is about; None for one that no release has written."""
    match key.removeprefix(META).decode(errors="replace").split("/"):
        case [channel, "begin_id" | "end_id" | "open_bytes" as field]:
            return ChannelField(channel, field)
        case [group, "group"]:
            return GroupField(group)
        case [channel, "page", end] if end.isascii() and end.isdigit() and len(end) < 21:
            return PageField(channel, int(end))
        case [group, channel, "current_id"]:
            return PositionField(group, channel)
        case _:
            return None
