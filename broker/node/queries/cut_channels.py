"""Find a tick that is closed on every one of some channels, and where it lies in each log.

An idle channel costs no wait: its Appender is asked to close a tick now, which writes nothing.

Why the cut is exact: its tick is at least the newest closed tick of each channel, and an append is
acknowledged only once its own tick is closed. So everything acknowledged before the call is inside.
Once the tick is closed everywhere, no channel gets another message with such a tick. Ids and ticks
of a log grow together, so the first id with a larger tick is where the cut ends.

Next: broker/spark/source/planning.py
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from actors import ActorDied, MailboxFull, StaleTerm
from broker.core.naming import pchannel_of
from broker.model.cut import Cut
from broker.model.failure import Refusal, Refused, StreamingCode, invalid_argument
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.node.appender_messages import CloseTick
from broker.node.directory_messages import Located

CHANNELS_MAX: Final = 4096
CUT_S: Final = 8.0
"""For a whole cut: a channel that closes no tick for this long is faulty itself."""

REOPEN_PAUSE_S: Final = 0.05
RETRY_PAUSE_S: Final = 0.02
TRIES_MAX: Final = 5
"""Their pauses last longer than a node keeps a range of reserved ticks, so a tick that is still
ahead after the last try was not given out by this cluster."""
STALLED_TRIES_MAX: Final = 50
"""Tries that close nothing, a second of pauses: an oracle that has died is back by then."""


LocateChannel = Callable[[PChannelName], Awaitable[Located]]
"""The open pchannel of this name on this node. Raises Refused, as `Locate` refuses."""

IsKnown = Callable[[PChannelName], Awaitable[bool]]
"""Whether the cluster has a pchannel of this name, whether or not a node serves it now."""


async def cut_channels(
    locate: LocateChannel, is_known: IsKnown, channels: Sequence[str], tick: TimeTick
) -> Cut:
    """The cut at `tick`, or with 0 at the newest tick that is closed on any of the channels now.

    Waits for a channel that moves between two owners. Raises Refused: INVALID_ARGUMENT (no channel,
    no name, too many, a tick from the future), CHANNEL_NOT_EXIST, INNER when a channel was not
    served or closed no tick in time, and the refusal of an Appender that has stopped writing.
    """
    if not 0 < len(channels) <= CHANNELS_MAX:
        raise invalid_argument(
            f"a cut names 1 to {CHANNELS_MAX} channels, this one names {len(channels)}"
        )
    if not all(channels):
        raise invalid_argument("a channel's name is empty; name a vchannel or a pchannel")
    by_channel = {channel: pchannel_of(channel) for channel in channels}
    names = tuple(dict.fromkeys(by_channel.values()))
    waited_for = ""
    with anyio.move_on_after(CUT_S):
        while True:
            try:
                places = [await _locate(locate, is_known, name) for name in names]
                found, ends = await _cut(places, tick)
                return Cut(found, {it: ends[name] for it, name in by_channel.items()})
            except (ActorDied, StaleTerm, _Reopening) as error:
                waited_for = str(error)
            await anyio.sleep(REOPEN_PAUSE_S)
    cause = f"no tick was closed on all channels within {CUT_S} s ({waited_for}); try again"
    raise Refused(StreamingCode.INNER, cause)


class _Reopening(Exception):
    """A channel of the cluster moves between two owners."""


async def _locate(locate: LocateChannel, is_known: IsKnown, name: PChannelName) -> Located:
    try:
        return await locate(name)
    except Refused as error:
        if error.refusal.code is StreamingCode.CHANNEL_NOT_EXIST and await is_known(name):
            raise _Reopening(error.refusal.cause) from error
        raise


async def _cut(
    places: Sequence[Located], wanted: TimeTick
) -> tuple[TimeTick, dict[PChannelName, MessageId]]:
    tick = wanted or max(place.view.offsets().closed_tick for place in places)
    _request_ticks(places, tick)
    for place in places:
        await close_up_to(place, tick)
    after = TimeTick(tick + 1)
    return tick, {place.channel.name: await _seek(place, after) for place in places}


async def _seek(place: Located, tick: TimeTick) -> MessageId:
    try:
        return await place.view.seek(tick)
    except Refused as error:
        if error.refusal.code is StreamingCode.ON_SHUTDOWN:
            # The log closed after its ticks did; it opens again elsewhere, with the same ids.
            raise _Reopening(error.refusal.cause) from error
        raise


def _request_ticks(places: Sequence[Located], tick: TimeTick) -> None:
    """Ask every channel that is behind to close a tick, so that they all do so at the same time."""
    for place in places:
        if place.view.offsets().closed_tick < tick:
            try:
                place.appender.tell(CloseTick())
            except MailboxFull:
                continue  # it is full of appends, and each of those closes a tick too


async def close_up_to(place: Located, tick: TimeTick, within_s: float = CUT_S) -> None:
    """Wait until the channel is closed up to `tick`, asking its Appender to close ticks meanwhile.

    Raises Refused: INVALID_ARGUMENT for a tick from the future, INNER when no newer tick can be
    closed, or none was `within_s`, and the refusal of an Appender that has stopped writing;
    ActorDied and StaleTerm when the Appender ends meanwhile.
    """
    with anyio.move_on_after(within_s):
        await _close_up_to(place, tick)
        return
    closed = place.view.offsets().closed_tick
    cause = (
        f"{place.channel.name} is closed up to {closed}, not up to {tick}, after {within_s:g} s:"
        " its writer has too much to do; try again"
    )
    raise Refused(StreamingCode.INNER, cause)


async def _close_up_to(place: Located, tick: TimeTick) -> None:
    tries, stalled, before = 0, 0, place.view.offsets().closed_tick
    while place.view.offsets().closed_tick < tick:
        try:
            answer = await place.appender.ask(CloseTick(), deadline_s=CUT_S)
        except MailboxFull:
            await anyio.sleep(RETRY_PAUSE_S)
            continue
        if isinstance(answer, Refusal):
            raise Refused(answer.code, answer.cause)
        if answer == before:
            stalled += 1
        else:
            tries += 1
        if stalled == STALLED_TRIES_MAX:
            # No progress at all: the oracle does not answer, so the wanted tick may be a valid one.
            cause = f"{place.channel.name} closes no tick above {answer} now; try again"
            raise Refused(StreamingCode.INNER, cause)
        if tries == TRIES_MAX and answer < tick:
            raise invalid_argument(
                f"tick {tick} is ahead of {place.channel.name}, which is at {answer};"
                " use a smaller tick"
            )
        if answer < tick:
            await anyio.sleep(RETRY_PAUSE_S)
