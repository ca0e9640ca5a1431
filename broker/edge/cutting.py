"""Finds a tick that is closed on every one of some channels, and where it lies on each.

Owns no state. An idle channel is not waited for: its Appender is asked to close a tick now, which
costs it no write. Next: broker/node/append/appender.py

Why this is exact: the tick is at least the newest closed tick of each channel, and an append is
acknowledged only when its own tick is closed, so whatever was acknowledged before belongs to the
cut. Once the tick is closed everywhere, no channel gets a message with such a tick any more; and
because ids and ticks of a log grow together, the first id with a larger tick parts the two.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from actors import ActorDied, MailboxFull, StaleTerm
from broker.core.naming import pchannel_of
from broker.edge.rpc.proxies import Proxy
from broker.model.cut import Cut
from broker.model.failure import Refusal, Refused, StreamingCode, invalid_argument
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.node.state.messages import CloseTick, Locate, Located

CHANNELS_MAX: Final = 4096
CUT_S: Final = 8.0
"""For a cut as a whole: a channel that cannot close a tick for so long is in trouble."""

REOPEN_PAUSE_S: Final = 0.05
AGAIN_PAUSE_S: Final = 0.02
TRIES_MAX: Final = 5
"""Together longer than a node keeps a range of ticks: a tick that is still ahead is not known."""


Known = Callable[[PChannelName], Awaitable[bool]]
"""Whether the cluster has a pchannel of this name, served now or not."""


async def cut(directory: Proxy, known: Known, channels: Sequence[str], tick: TimeTick) -> Cut:
    """The cut at `tick`, or with 0 at the newest tick closed on any of the channels now.

    A channel between two owners is waited for. Raises Refused: INVALID_ARGUMENT (no channel, no
    name, too many, a tick from the future), CHANNEL_NOT_EXIST, INNER when a channel was not served
    or did not close a tick in time, and what its Appender says when it writes no more.
    """
    if not 0 < len(channels) <= CHANNELS_MAX:
        raise invalid_argument(f"{len(channels)} channels; a cut needs 1 to {CHANNELS_MAX}")
    if not all(channels):
        raise invalid_argument("a channel has no name")
    by_channel = {channel: pchannel_of(channel) for channel in channels}
    names = tuple(dict.fromkeys(by_channel.values()))
    waited_for = ""
    with anyio.move_on_after(CUT_S):
        while True:
            try:
                places = [await _locate(directory, known, name) for name in names]
                found, ends = await _cut(places, tick)
                return Cut(found, {it: ends[name] for it, name in by_channel.items()})
            except (ActorDied, StaleTerm, _Reopening) as error:
                waited_for = str(error)
            await anyio.sleep(REOPEN_PAUSE_S)
    cause = f"no tick could be closed on all channels within {CUT_S} s; try again ({waited_for})"
    raise Refused(StreamingCode.INNER, cause)


class _Reopening(Exception):
    """A channel of the cluster is between two owners."""


async def _locate(directory: Proxy, known: Known, name: PChannelName) -> Located:
    located = await directory.ask(Locate(name, None))
    if isinstance(located, Refusal):
        if located.code is StreamingCode.CHANNEL_NOT_EXIST and await known(name):
            raise _Reopening(located.cause)
        raise Refused(located.code, located.cause)
    return located


async def _cut(
    places: Sequence[Located], wanted: TimeTick
) -> tuple[TimeTick, dict[PChannelName, MessageId]]:
    tick = wanted or max(place.view.offsets().closed_tick for place in places)
    _hurry(places, tick)
    for place in places:
        await close_up_to(place, tick)
    after = TimeTick(tick + 1)
    return tick, {place.channel.name: await _seek(place, after) for place in places}


async def _seek(place: Located, tick: TimeTick) -> MessageId:
    """A log that was closed since its ticks were is open again elsewhere, or soon."""
    try:
        return await place.view.seek(tick)
    except Refused as error:
        if error.refusal.code is StreamingCode.ON_SHUTDOWN:
            raise _Reopening(error.refusal.cause) from error
        raise


def _hurry(places: Sequence[Located], tick: TimeTick) -> None:
    """Have all that are behind close a tick at once, so that waiting for one is waiting for all."""
    for place in places:
        if place.view.offsets().closed_tick < tick:
            try:
                place.appender.tell(CloseTick())
            except MailboxFull:  # of messages, which close ticks as well
                continue


async def close_up_to(place: Located, tick: TimeTick) -> None:
    """Until the channel is closed up to the tick, by the messages it gets or by being asked.

    Raises Refused: INVALID_ARGUMENT for a tick from the future, INNER when there are no newer ticks
    to be had, and what the Appender says when it writes no more; ActorDied and StaleTerm when it
    ends meanwhile.
    """
    tries, before = 0, place.view.offsets().closed_tick
    while place.view.offsets().closed_tick < tick:
        try:
            answer = await place.appender.ask(CloseTick(), deadline_s=CUT_S)
        except MailboxFull:
            await anyio.sleep(AGAIN_PAUSE_S)
            continue
        if isinstance(answer, Refusal):
            raise Refused(answer.code, answer.cause)
        tries += 1
        if tries == TRIES_MAX and answer == before:
            cause = f"{place.channel.name} closes no tick above {answer} now; try again"
            raise Refused(StreamingCode.INNER, cause)
        if tries == TRIES_MAX and answer < tick:
            raise invalid_argument(
                f"tick {tick} lies ahead of {place.channel.name}, which is at {answer}"
            )
        if answer < tick:
            await anyio.sleep(AGAIN_PAUSE_S)
