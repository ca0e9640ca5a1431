"""When a named cursor may move, and how far it is behind.

Pure: what is stored, what is closed and what time it is are arguments.
Next: broker/timesync/cursors.py
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from broker.core.naming import pchannel_of
from broker.core.time import tso
from broker.model.failure import Refusal, StreamingCode, invalid_argument
from broker.model.ids import PChannelName, TimeTick
from broker.model.named_cursor import CursorView, NamedCursor

NAME_LENGTH_MAX: Final = 255
CHANNEL_LENGTH_MAX: Final = 255
CHANNELS_MAX: Final = 4096
CURSORS_MAX: Final = 1024
ALL_CHANNELS_MAX: Final = 65_536
"""Over all cursors, so that they can be shown in one answer."""

AHEAD_MS_MAX: Final = 10_000
"""What is closed may be so much older than what will be, soon: after a change of owner."""

ClosedByPChannel = Mapping[PChannelName, TimeTick]


def name_refusal(name: str) -> Refusal | None:
    """Why no cursor can have this name; None when one can."""
    if 0 < len(name) <= NAME_LENGTH_MAX and name.isprintable():
        return None
    shown = repr(name[:40])
    return invalid_argument(
        f"cursor name {shown} must have 1 to {NAME_LENGTH_MAX} characters, all of them printable"
    ).refusal


def move_refusal(
    name: str,
    before: NamedCursor | None,
    channels: tuple[str, ...],
    tick: int,
    known: Collection[PChannelName],
) -> Refusal | None:
    """Why the cursor may not go to `tick` on `channels` (none: as before), as far as it shows.

    CHANNEL_NOT_EXIST: no such cursor, or no such pchannel; INVALID_REQUEST_SEQ: backwards.
    """
    if before is None and not channels:
        cause = f"there is no cursor {name!r}; name the channels it is about to make it"
        return Refusal(StreamingCode.CHANNEL_NOT_EXIST, cause)
    if len(channels) > CHANNELS_MAX:
        return invalid_argument(
            f"{len(channels)} channels; a cursor can have {CHANNELS_MAX}"
        ).refusal
    for channel in channels:
        if len(channel) > CHANNEL_LENGTH_MAX:
            return invalid_argument(
                f"a channel's name has more than {CHANNEL_LENGTH_MAX} characters"
            ).refusal
        if pchannel_of(channel) not in known:
            cause = f"channel {channel!r} is on no pchannel of this cluster"
            return Refusal(StreamingCode.CHANNEL_NOT_EXIST, cause)
    if tick <= 0:
        return invalid_argument(f"a cursor moves to a time tick, not to {tick}").refusal
    if before is not None and tick < before.tick:
        cause = f"cursor {name!r} is at tick {before.tick} and never goes back, not to {tick}"
        return Refusal(StreamingCode.INVALID_REQUEST_SEQ, cause)
    return None


def future_refusal(
    channels: tuple[str, ...], tick: int, closed: ClosedByPChannel
) -> Refusal | None:
    """Why `tick` cannot be processed on all channels yet; None when it is closed on each.

    INVALID_ARGUMENT: it lies ahead of everything. INNER: it may be closed soon, or nobody serves a
    channel now that could tell; ask again.
    """
    names = dict.fromkeys(map(pchannel_of, channels))
    late = [name for name in names if closed.get(name, 0) < tick]
    if not late:
        return None
    newest = max(closed.values(), default=TimeTick(0))
    if closed and tick > newest + tso.compose(AHEAD_MS_MAX, 0):
        return invalid_argument(
            f"tick {tick} lies ahead of every pchannel; they are at {newest}"
        ).refusal
    at = closed.get(late[0])
    why = "which nobody serves now" if at is None else f"which is closed up to {at}"
    return Refusal(StreamingCode.INNER, f"tick {tick} is not closed yet on {late[0]}, {why}")


def moved(
    name: str, before: NamedCursor | None, channels: tuple[str, ...], tick: TimeTick, now_ms: int
) -> NamedCursor:
    """The cursor after a move that is not refused; the same when it changes nothing."""
    wanted = tuple(dict.fromkeys(channels))
    if before is None:
        return NamedCursor(name, tick, wanted, now_ms)
    moved_ms = now_ms if tick > before.tick else before.moved_ms
    return replace(before, tick=tick, channels=wanted or before.channels, moved_ms=moved_ms)


def room_refusal(others: Collection[NamedCursor], after: NamedCursor) -> Refusal | None:
    """Why there is no room for a cursor beside the others; None when there is."""
    if len(others) >= CURSORS_MAX:
        return Refusal(StreamingCode.INNER, f"there are {CURSORS_MAX} cursors already; drop one")
    if sum(len(it.channels) for it in others) + len(after.channels) > ALL_CHANNELS_MAX:
        cause = f"all cursors together can have {ALL_CHANNELS_MAX} channels; drop one"
        return Refusal(StreamingCode.INNER, cause)
    return None


def view(cursor: NamedCursor, closed: ClosedByPChannel, now_ms: int) -> CursorView:
    """The cursor beside what is closed now."""
    ticks = [closed.get(name, TimeTick(0)) for name in map(pchannel_of, cursor.channels)]
    closed_tick = min(ticks)
    at_ms = tso.physical_ms_of(cursor.tick)
    behind_ms = tso.physical_ms_of(closed_tick) - at_ms if closed_tick > cursor.tick else 0
    return CursorView(
        cursor.name,
        cursor.tick,
        cursor.channels,
        cursor.moved_ms,
        max(0, now_ms - at_ms),
        closed_tick,
        behind_ms,
    )
