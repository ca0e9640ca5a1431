"""Finds the newest message of a vchannel below an id, from there back to the oldest record."""

from bisect import bisect_right
from typing import Final

from broker.core.space.purged_messages import is_message
from broker.model.ids import MessageId, TimeTick
from broker.model.retention.dead import Contents, VChannelPart
from broker.model.retention.policy import SealedSegment
from broker.node.state.open_channels import OpenChannel
from broker.ports.wal import Log, LogMoves

LOOKS_MAX: Final = 32
"""Reads of the log, of up to 4 MiB each."""
FIRST_IDS: Final = 1024
"""How many ids before the end are looked at first; then eight times as many, and so on."""
_GROWS: Final = 8


async def newest_tick(
    channel: OpenChannel, vchannel: str, from_id: MessageId, until_id: MessageId
) -> TimeTick | None:
    """The tick of the newest message with an id in between; 0: there is none.

    `until_id`: at most the end of the log. None: there is too much to look at, or the log is being
    moved. Raises WalError, Refused.
    """
    try:
        parts = await _parts(channel, vchannel, from_id, until_id)
    except LogMoves:
        return None
    looks = _Looks(channel, vchannel)
    for part in reversed(parts):
        base, upper, ids = max(from_id, part.base_id), min(until_id, part.next_id), FIRST_IDS
        while upper > base:
            lower = MessageId(max(base, upper - ids))
            found = await looks.newest(lower, MessageId(upper))
            if found != 0:
                return found
            upper, ids = lower, ids * _GROWS
    return TimeTick(0)


async def _parts(
    channel: OpenChannel, vchannel: str, from_id: MessageId, until_id: MessageId
) -> list[VChannelPart]:
    """What each segment has of the vchannel, if any of it lies between the ids."""
    contents, at = list[Contents](), from_id
    # What lies outside is not read: most purges end in a segment that was sealed long ago.
    while at < until_id:
        # Asked again after each read: the active segment may have been sealed by then.
        if (segment := _sealed_at(channel.log, at)) is not None:
            contents.append(await channel.contents.sealed(channel.log, segment))
            at = segment.next_id
            continue
        active = await channel.contents.active_below(channel.log, until_id)
        # The thread that writes the log seals at any time, so also before the read began.
        if _sealed_at(channel.log, at) is None:
            contents.append(active)
            break
    parts = [it[vchannel] for it in contents if vchannel in it]
    return [it for it in parts if it.base_id < until_id and it.next_id > from_id]


def _sealed_at(log: Log, at: MessageId) -> SealedSegment | None:
    """The sealed segment that has this id, or the first one behind it."""
    segments = log.segments()
    index = bisect_right(segments, at, key=lambda it: it.next_id)
    return segments[index] if index < len(segments) else None


class _Looks:
    def __init__(self, channel: OpenChannel, vchannel: str) -> None:
        self._channel, self._vchannel = channel, vchannel
        self._left = LOOKS_MAX

    async def newest(self, at: MessageId, until_id: MessageId) -> TimeTick | None:
        """As `newest_tick`, of these ids alone."""
        newest = TimeTick(0)
        while at < until_id:
            if not self._left:
                return None
            self._left -= 1
            heads = await self._channel.heads(at)
            if not heads:
                break
            for head in heads:
                if head.base_id < until_id and is_message(head, self._vchannel):
                    newest = head.last_tick
            at = heads[-1].next_id
        return newest
