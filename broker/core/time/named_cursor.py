"""When a named cursor may move, what a commit or a reset makes of it, and how far it lags."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from broker.core.naming import pchannel_of
from broker.core.time import tso
from broker.model.failure import Refusal, StreamingCode, invalid_argument
from broker.model.ids import PChannelName, TimeTick
from broker.model.named_cursor import ChannelPosition, CursorView, NamedCursor

Positions = Mapping[str, ChannelPosition]

NAME_LENGTH_MAX: Final = 255
CHANNEL_LENGTH_MAX: Final = 255
CHANNELS_MAX: Final = 4096
CURSORS_MAX: Final = 1024
ALL_CHANNELS_MAX: Final = 65_536
"""Over all cursors, so that one response can list them."""

RESERVED: Final = frozenset(
    ("all", "latest", "now", "earliest", "oldest", "newest", "begin", "beginning", "start", "end")
)

AHEAD_MS_MAX: Final = 10_000
"""How far a tick may be ahead of the newest closed one and still be closed soon, for instance right
after a change of owner."""

ClosedByPChannel = Mapping[PChannelName, TimeTick]


def name_refusal(name: str) -> Refusal | None:
    """Why this cannot name a cursor; None if it can."""
    if 0 < len(name) <= NAME_LENGTH_MAX and name.isprintable():
        return None
    shown = repr(name[:40])
    return invalid_argument(
        f"cursor name {shown} must have 1 to {NAME_LENGTH_MAX} characters, all of them printable"
    ).refusal


def new_name_refusal(name: str) -> Refusal | None:
    """Why no new cursor can have this name: it reads as a place in the log."""
    if name.casefold() not in RESERVED:
        return None
    return invalid_argument(
        f"{name!r} cannot name a cursor, because it reads as a place in the log; choose another"
    ).refusal


def move_refusal(
    name: str,
    before: NamedCursor | None,
    channels: tuple[str, ...],
    tick: int,
    known: Collection[PChannelName],
) -> Refusal | None:
    """Why the request cannot move the cursor to `tick` on `channels` (none: as before).

    CHANNEL_NOT_EXIST: unknown cursor or pchannel; INVALID_REQUEST_SEQ: the cursor would move back.
    Whether the tick is closed is checked by `future_refusal`.
    """
    if before is None and not channels:
        cause = f"no cursor {name!r}; pass the channels to create it"
        return Refusal(StreamingCode.CHANNEL_NOT_EXIST, cause)
    refusal = channels_refusal(channels, known)
    if refusal is not None:
        return refusal
    if tick <= 0:
        return invalid_argument(f"cursor tick {tick} must be positive").refusal
    if before is not None and tick < before.tick:
        cause = (
            f"cursor {name!r} is at tick {before.tick} and cannot move back to {tick}; use reset"
        )
        return Refusal(StreamingCode.INVALID_REQUEST_SEQ, cause)
    return None


def channels_refusal(channels: Collection[str], known: Collection[PChannelName]) -> Refusal | None:
    """Why a cursor cannot have these channels; None if it can."""
    if len(channels) > CHANNELS_MAX:
        return invalid_argument(
            f"{len(channels)} channels; a cursor can have {CHANNELS_MAX}"
        ).refusal
    for channel in channels:
        if len(channel) > CHANNEL_LENGTH_MAX:
            return invalid_argument(
                f"a channel name is longer than {CHANNEL_LENGTH_MAX} characters"
            ).refusal
        if pchannel_of(channel) not in known:
            cause = f"channel {channel!r} belongs to no pchannel of this cluster"
            return Refusal(StreamingCode.CHANNEL_NOT_EXIST, cause)
    return None


def positions_refusal(positions: Positions, newest: TimeTick) -> Refusal | None:
    """Why nobody can have come so far: a negative number, or a tick well ahead of `newest`."""
    for channel, at in positions.items():
        if at.tick < 0 or at.id < 0 or at.from_id < 0:
            return invalid_argument(f"{at} is not a position of {channel}").refusal
        if at.tick > newest + tso.compose(AHEAD_MS_MAX, 0):
            return invalid_argument(
                f"tick {at.tick} of {channel} lies in the future; the newest is {newest}"
            ).refusal
    return None


def commit_refusal(before: NamedCursor, positions: Positions, epoch: int) -> Refusal | None:
    """Why a reader of `epoch` cannot commit these positions.

    INVALID_REQUEST_SEQ: the cursor was reset, or dropped and made again, after the reader started.
    """
    if epoch != before.epoch:
        cause = (
            f"cursor {before.name!r} was reset or made again after this reader was started from"
            " it; nothing was committed; start another reader"
        )
        return Refusal(StreamingCode.INVALID_REQUEST_SEQ, cause)
    missing = [it for it in positions if it not in before.positions]
    if missing:
        return invalid_argument(
            f"cursor {before.name!r} has no channel {missing[0]}; it has {[*before.positions]}"
        ).refusal
    return None


def committed(before: NamedCursor, positions: Positions, now_ms: int) -> NamedCursor:
    """The cursor after a commit: no channel moves back; equal to `before` if nothing changes."""
    after = {
        name: at.joined(positions[name]) if name in positions else at
        for name, at in before.positions.items()
    }
    if after == before.positions:
        return before
    return replace(before, positions=after, moved_ms=now_ms)


def future_refusal(
    channels: tuple[str, ...], tick: int, closed: ClosedByPChannel
) -> Refusal | None:
    """Why `tick` cannot be processed on all channels yet; None if it is closed on each.

    INVALID_ARGUMENT: it is ahead of every pchannel. INNER: it may be closed soon, or a channel has
    no owner now; ask again.
    """
    names = dict.fromkeys(map(pchannel_of, channels))
    late = [name for name in names if closed.get(name, 0) < tick]
    if not late:
        return None
    newest = max(closed.values(), default=TimeTick(0))
    # While no pchannel has an owner, nothing is known about the future: ask again.
    if closed and tick > newest + tso.compose(AHEAD_MS_MAX, 0):
        return invalid_argument(
            f"tick {tick} is ahead of every pchannel; the newest closed one is {newest}"
        ).refusal
    at = closed.get(late[0])
    why = "which has no owner now" if at is None else f"which is closed up to {at}"
    return Refusal(StreamingCode.INNER, f"tick {tick} is not closed yet on {late[0]}, {why}")


def moved(
    name: str, before: NamedCursor | None, channels: tuple[str, ...], tick: TimeTick, now_ms: int
) -> NamedCursor:
    """The cursor after an accepted move; equal to `before` if nothing changes."""
    at = ChannelPosition(tick)
    if before is None:
        return NamedCursor(name, dict.fromkeys(channels, at), now_ms)
    # A channel that a reader has committed further stays there.
    positions = {
        it: before.positions[it].joined(at) if it in before.positions else at
        for it in channels or before.positions
    }
    # A repeated move must leave the cursor equal to `before`.
    moved_ms = now_ms if tick > before.tick else before.moved_ms
    return replace(before, positions=positions, moved_ms=moved_ms)


def room_refusal(others: Collection[NamedCursor], after: NamedCursor) -> Refusal | None:
    """Why the cursor would exceed the limits, given the others; None if it does not."""
    if len(others) >= CURSORS_MAX:
        return Refusal(StreamingCode.INNER, f"there are {CURSORS_MAX} cursors already; drop one")
    if sum(len(it.channels) for it in others) + len(after.channels) > ALL_CHANNELS_MAX:
        cause = f"all cursors together can have {ALL_CHANNELS_MAX} channels; drop one"
        return Refusal(StreamingCode.INNER, cause)
    return None


def view(cursor: NamedCursor, closed: ClosedByPChannel, now_ms: int) -> CursorView:
    """The cursor with its lag behind the clock and behind the closed ticks."""
    ticks = [closed.get(name, TimeTick(0)) for name in map(pchannel_of, cursor.channels)]
    closed_tick = min(ticks)
    # At the beginning of the log there is no tick to count from.
    at_ms = tso.physical_ms_of(cursor.tick) if cursor.tick else cursor.moved_ms
    behind_ms = max(0, tso.physical_ms_of(closed_tick) - at_ms) if closed_tick else 0
    return CursorView(
        cursor.name,
        cursor.tick,
        cursor.channels,
        cursor.moved_ms,
        max(0, now_ms - at_ms),
        closed_tick,
        behind_ms,
        cursor.epoch,
        cursor.positions,
        dict(zip(cursor.channels, ticks, strict=True)),
    )
