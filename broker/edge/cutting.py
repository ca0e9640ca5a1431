"""Finds a tick that is closed on every one of some channels, and where it lies on each.

Owns no state. An idle channel is not waited for: its Appender is asked to close a tick now, which
costs it no write. Next: broker/node/appender.py

Why this is exact: the tick is at least the newest closed tick of each channel, and an append is
acknowledged only when its own tick is closed, so whatever was acknowledged before belongs to the
cut. Once the tick is closed everywhere, no channel gets a message with such a tick any more; and
because ids and ticks of a log grow together, the first id with a larger tick parts the two.
"""

from collections.abc import Sequence
from typing import Final

import anyio

from actors import ActorDied, MailboxFull, StaleTerm
from broker.core.naming import pchannel_of
from broker.edge.reach import Reach
from broker.model.cut import Cut
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.node.messages import CloseTick, Locate, Located

CHANNELS_MAX: Final = 4096
CUT_S: Final = 8.0
"""For a cut as a whole: a channel that cannot close a tick for so long is in trouble."""

REOPEN_PAUSE_S: Final = 0.05
AGAIN_PAUSE_S: Final = 0.02
TRIES_MAX: Final = 5
"""Together longer than a node keeps a range of ticks: a tick that is still ahead is not known."""


async def cut(directory: Reach, channels: Sequence[str], tick: TimeTick) -> Cut:
    """The cut at `tick`, or with 0 at the newest tick closed on any of the channels now.

    Raises Refused: INVALID_ARGUMENT (no channel, no name, too many, a tick from the future),
    CHANNEL_NOT_EXIST, INNER when a channel does not close a tick in time, and what it is refused.
    """
    if not 0 < len(channels) <= CHANNELS_MAX:
        raise _invalid(f"{len(channels)} channels; a cut needs 1 to {CHANNELS_MAX}")
    if not all(channels):
        raise _invalid("a channel has no name")
    by_channel = {channel: pchannel_of(channel) for channel in channels}
    names = tuple(dict.fromkeys(by_channel.values()))
    with anyio.move_on_after(CUT_S):
        found, ends = await _settled(directory, names, tick)
        return Cut(found, {channel: ends[name] for channel, name in by_channel.items()})
    cause = f"no tick could be closed on all channels within {CUT_S} s; try again"
    raise Refused(StreamingCode.INNER, cause)


async def _settled(
    directory: Reach, names: Sequence[PChannelName], wanted: TimeTick
) -> tuple[TimeTick, dict[PChannelName, MessageId]]:
    """Tried again while an owner is being replaced: what served a moment ago will serve again."""
    served: set[PChannelName] = set()
    while True:
        try:
            places = [await _locate(directory, name, served) for name in names]
            tick = wanted or max(place.view.offsets().closed_tick for place in places)
            _hurry(places, tick)
            for place in places:
                await _close(place, tick)
            ends = [await place.view.seek(TimeTick(tick + 1)) for place in places]
        except (ActorDied, StaleTerm, _Reopening):
            await anyio.sleep(REOPEN_PAUSE_S)
        else:
            return tick, dict(zip(names, ends, strict=True))


class _Reopening(Exception):
    """A channel that was there is between two owners."""


async def _locate(directory: Reach, name: PChannelName, served: set[PChannelName]) -> Located:
    located = await directory.ask(Locate(name, None))
    if isinstance(located, Refusal):
        if located.code is StreamingCode.CHANNEL_NOT_EXIST and name in served:
            raise _Reopening
        raise Refused(located.code, located.cause)
    served.add(name)
    return located


def _hurry(places: Sequence[Located], tick: TimeTick) -> None:
    """Have all that are behind close a tick at once, so that waiting for one is waiting for all."""
    for place in places:
        if place.view.offsets().closed_tick < tick:
            try:
                place.appender.tell(CloseTick())
            except MailboxFull:  # of messages, which close ticks as well
                continue


async def _close(place: Located, tick: TimeTick) -> None:
    """Until the channel is closed up to the tick, by the messages it gets or by being asked."""
    tries = 0
    while place.view.offsets().closed_tick < tick:
        try:
            answer = await place.appender.ask(CloseTick(), deadline_s=CUT_S)
        except MailboxFull:
            await anyio.sleep(AGAIN_PAUSE_S)
            continue
        if isinstance(answer, Refusal):
            raise Refused(answer.code, answer.cause)
        tries += 1
        if tries == TRIES_MAX and answer < tick:
            raise _invalid(f"tick {tick} lies ahead of {place.channel.name}, which is at {answer}")
        if answer < tick:
            await anyio.sleep(AGAIN_PAUSE_S)


def _invalid(cause: str) -> Refused:
    return Refused(StreamingCode.INVALID_ARGUMENT, cause)
