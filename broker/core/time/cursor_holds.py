"""What a named cursor needs of each pchannel's log, and whether that is still there."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from broker.core.naming import pchannel_of
from broker.core.time.named_cursor import Positions
from broker.model.failure import Refusal, StreamingCode
from broker.model.ids import FIRST_MESSAGE_ID, MessageId, PChannelName, TimeTick
from broker.model.named_cursor import ChannelPosition, NamedCursor
from broker.model.retention.holders import (
    Hold,
    HolderKind,
    PassCause,
    Passed,
)
from broker.model.retention.policy import (
    HoldLimits,
    LogStart,
)

LIMITS: Final = {PassCause.BYTES: "hold_bytes_max", PassCause.TIME: "hold_s_max"}

Starts = Mapping[PChannelName, LogStart]


def hold_of(cursor: NamedCursor, pchannel: PChannelName, limits: HoldLimits) -> Hold | None:
    """The hold of a cursor on a pchannel; None if it has no channel there, or holds nothing."""
    places = _places(cursor.positions, pchannel)
    if not places or not limits.bytes_max or not cursor.holds:
        return None
    tick, from_id = TimeTick(0), MessageId(0)
    # One that may need everything decides; else the smallest of each, where it is known.
    if all(it.closed > 0 or (not it.tick and it.from_id) for it in places):
        tick = min((it.closed for it in places if it.tick), default=tick)
        from_id = min((it.from_id for it in places if it.from_id), default=from_id)
    until_ms = cursor.moved_ms + limits.age_s_max * 1000
    names = frozenset(it for it in cursor.positions if pchannel_of(it) == pchannel)
    vchannels = frozenset[str]() if pchannel in names else names
    return Hold(
        HolderKind.CURSOR, cursor.name, tick, from_id, limits.bytes_max, until_ms, vchannels
    )


def lost_on(cursor: NamedCursor, starts: Starts) -> tuple[PChannelName, ...]:
    """The pchannels of which a message is removed that the cursor may still need."""
    names = dict.fromkeys(map(pchannel_of, cursor.channels))
    return tuple(
        name
        for name in names
        if name in starts
        and any(is_lost(it, starts[name]) for it in _places(cursor.positions, name))
    )


def is_lost(at: ChannelPosition, start: LogStart) -> bool:
    """Whether a reader that continues here may miss a message that is removed."""
    if at.tick and at.closed < start.removed_tick:
        return True
    # Without a tick it begins with the first message, also where no id says so.
    from_id = at.from_id if at.tick else max(at.from_id, FIRST_MESSAGE_ID)
    return 0 < from_id < start.first_id


def from_what_is_left(positions: Positions, starts: Starts) -> Positions:
    """The same positions; whoever starts at the beginning starts at the first message left."""
    return {
        name: it if it.tick else replace(it, from_id=max(it.from_id, _first_id(name, starts)))
        for name, it in positions.items()
    }


def removed_refusal(name: str, positions: Positions, starts: Starts) -> Refusal | None:
    """Why a cursor cannot be set to these positions: retention has removed what follows them."""
    for channel, at in positions.items():
        start = _start(channel, starts)
        if is_lost(at, start):
            cause = (
                f"cursor {name!r} cannot be set to tick {at.tick} of {channel}: retention has"
                f" removed messages up to tick {start.removed_tick}; set it to that tick or a later"
                " one, or to `all` for what is left"
            )
            return Refusal(StreamingCode.UNRECOVERABLE, cause)
    return None


def passed_refusal(
    cursor: NamedCursor, pchannel: PChannelName, start: LogStart, passed: Passed | None
) -> Refusal:
    """What the reader of a cursor that was passed gets at its next commit."""
    cause = (
        f"cursor {cursor.name!r} was passed by retention on {pchannel}:"
        f" {passed_text(start, passed)}; nothing was committed; set it with `tidemark cursors reset"
        f" {cursor.name} all` or to a later place, and start another reader"
    )
    return Refusal(StreamingCode.UNRECOVERABLE, cause)


def passed_text(start: LogStart, passed: Passed | None) -> str:
    """What was removed, and by which limit."""
    removed = f"messages up to tick {start.removed_tick} are removed"
    if passed is None:
        return removed
    held = f"it held back {passed.bytes:,} bytes"
    if passed.cause is PassCause.BYTES:
        return f"{held}, more than hold_bytes_max ({passed.limit:,}), and {removed}"
    if passed.cause is PassCause.TIME:
        return f"it made no commit within hold_s_max, and {removed}"
    return f"the log had reached its bound while no coordinator answered, and {removed}"


def without_those_that_moved(
    passed: Iterable[Passed], cursors: Mapping[str, NamedCursor], name: PChannelName, at: LogStart
) -> tuple[Passed, ...]:
    """Those who still miss something: not a cursor that moved on, was reset or is dropped."""
    return tuple(
        it
        for it in passed
        if it.kind is not HolderKind.CURSOR
        or (it.name in cursors and name in lost_on(cursors[it.name], {name: at}))
    )


def _places(positions: Positions, pchannel: PChannelName) -> list[ChannelPosition]:
    return [it for name, it in positions.items() if pchannel_of(name) == pchannel]


def _first_id(channel: str, starts: Starts) -> MessageId:
    # A log that has lost nothing may have no start here.
    return max(FIRST_MESSAGE_ID, _start(channel, starts).first_id)


def _start(channel: str, starts: Starts) -> LogStart:
    return starts.get(pchannel_of(channel), LogStart())
