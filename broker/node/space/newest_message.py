"""Finds the newest message of a vchannel below an id, from there back to the oldest record."""

from typing import Final

from broker.core.space.purged_messages import is_message
from broker.model.ids import MessageId, TimeTick
from broker.model.retention.dead import VChannelPart
from broker.node.state.open_channels import OpenChannel
from broker.ports.wal import LogMoves

LOOKS_MAX: Final = 32
"""Reads of the log, of up to 4 MiB each."""
FIRST_IDS: Final = 1024
"""How many ids before the end are looked at first; then eight times as many, and so on."""
_GROWS: Final = 8


async def newest_tick(
    channel: OpenChannel,
    vchannel: str,
    from_id: MessageId,
    until_id: MessageId,
    *,
    grown_by: int = 1,
) -> TimeTick | None:
    """The tick of the newest message with an id in between; 0: there is none.

    None: there is too much to look at, or the log is being moved. `grown_by`: what is known of the
    active segment will do until it has so many bytes more. Raises WalError, Refused.
    """
    try:
        parts = await _parts(channel, vchannel, from_id, until_id, grown_by)
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
    channel: OpenChannel, vchannel: str, from_id: MessageId, until_id: MessageId, grown_by: int
) -> list[VChannelPart]:
    contents, base = [], MessageId(0)
    for segment in channel.log.segments():
        # What lies outside is not read: most purges end in a segment that was sealed long ago.
        if segment.next_id > from_id and base < until_id:
            contents.append(await channel.contents.sealed(channel.log, segment))
        base = segment.next_id
    if base < until_id:
        contents.append(await channel.contents.active(channel.log, grown_by))
    parts = [it[vchannel] for it in contents if vchannel in it]
    return [it for it in parts if it.base_id < until_id and it.next_id > from_id]


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
