"""The opaque `msg_id` of positions, and where feeds start for them.

The first byte tells who made it: a plain stream (the message itself), a time tick stream by the
clock of the log (a tick), or by that of the senders (where to read on, and how far it had read).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.core.msgstream.sender_windows import Resume
from broker.msgstream.backends.stream_backend import FeedStart, StreamBackend
from broker.msgstream.messages.ts_msg import MsgPosition
from broker.msgstream.stream_errors import BadPosition

MESSAGE: Final = b"m"
LOG_TICK: Final = b"t"
SENDER: Final = b"s"
_WORDS: Final = {
    MESSAGE: "of a message of a plain stream",
    LOG_TICK: "of a time tick stream by the clock of the log",
    SENDER: "of a time tick stream by the clock of the senders",
}

Offset = Mapping[str, Any]
"""An offset of Spark's source: `{"ends": {channel: id}, "tick": tick}`, and perhaps `"ahead"`."""


def sender_id(at: Resume) -> bytes:
    """The `msg_id` of where a channel continues by the clock of the senders."""
    return SENDER + bytes([len(at.place)]) + at.place + at.through


def resume_of(position: MsgPosition) -> Resume:
    """The opposite of `sender_id`."""
    size = position.msg_id[1] if len(position.msg_id) > 1 else 0
    place, through = position.msg_id[2 : 2 + size], position.msg_id[2 + size :]
    return Resume(place, through, position.timestamp)


def check_kind(position: MsgPosition, wanted: bytes) -> None:
    """Raise BadPosition for one that a stream of another kind has made."""
    if not position.msg_id:
        raise BadPosition(
            f"the position of {position.channel_name} has no msg_id: to read from the beginning,"
            " call as_consumer and no seek"
        )
    kind = position.msg_id[:1]
    if kind != wanted:
        made = _WORDS.get(kind, "of no stream of ours")
        raise BadPosition(
            f"the position of {position.channel_name} is {made},"
            f" this stream takes one {_WORDS[wanted]}"
        )


def start_of(position: MsgPosition, backend: StreamBackend) -> FeedStart:
    """Where the feed of a checked position starts. BadPosition for one of another log."""
    kind, rest = position.msg_id[:1], position.msg_id[1:]
    if kind == SENDER:
        rest = resume_of(position).place
        if rest:
            backend.tick_of(rest)
        return FeedStart(at=rest)
    tick = backend.tick_of(rest)
    if kind == LOG_TICK:
        return FeedStart(after_tick=tick)
    return FeedStart(at=_behind(rest))


def _behind(place: bytes) -> bytes:
    """The least place behind this one."""
    return (int.from_bytes(place, "big") + 1).to_bytes(len(place), "big")


def ticks_of(offset: Offset | str, channels: Sequence[str]) -> dict[str, int]:
    """The tick up to which each channel was read at an offset of Spark. BadPosition for no offset.

    All channels must be in it, and no others.
    """
    found = _parsed(offset)
    ends, tick, ahead = found.get("ends"), found.get("tick"), found.get("ahead", {})
    if type(tick) is not int or not isinstance(ends, Mapping) or not isinstance(ahead, Mapping):
        raise BadPosition(f'{str(offset)[:200]} is no offset: it needs "tick" and "ends"')
    if set(ends) != set(channels):
        odd = sorted(set(ends) ^ set(channels))
        raise BadPosition(
            f"the offset and the stream have different channels, for example {odd[:4]}: call"
            " as_consumer with those of the offset"
        )
    ticks = {name: ahead.get(name, tick) for name in channels}
    # Not isinstance: a JSON `true` would pass as a tick.
    if odd := [name for name, it in ticks.items() if type(it) is not int]:
        raise BadPosition(f"the offset has no tick for {odd[:4]}, but {ticks[odd[0]]!r}")
    return ticks


def _parsed(offset: Offset | str) -> Mapping[str, Any]:
    if isinstance(offset, Mapping):
        return offset
    try:
        found = json.loads(offset)
    except ValueError as error:
        raise BadPosition(f"{offset[:200]!r} is no offset: {error}") from None
    if not isinstance(found, Mapping):
        raise BadPosition(f"{offset[:200]!r} is no offset, which is a mapping")
    return found
