"""Measures what a vchannel has in its log, and finds the tick up to which that is too much."""

from dataclasses import dataclass

from broker.core.space.retention_due import OldestRecords, excess, step_bytes
from broker.model.ids import MessageId, TimeTick
from broker.model.retention.dead import VChannelPart
from broker.node.state.open_channels import OpenChannel
from broker.ports.wal import NotNow

LOOKS_MAX = 64
"""Reads of the log, of up to 4 MiB each, that look for the last record to go."""
GRAINS = 64


@dataclass(slots=True)
class VChannelSize:
    """`quiet_bytes`: below this estimate of its size nothing is due."""

    quiet_bytes: int = 0


async def due_by_size(
    channel: OpenChannel, vchannel: str, bytes_max: int, seen: VChannelSize
) -> TimeTick:
    """Up to which tick a vchannel has more than the limit; 0: it has not. WalError, Refused."""
    purge = channel.purges.purges.get(vchannel)
    floor = MessageId(0) if purge is None else purge.next_id
    step = step_bytes(bytes_max)
    try:
        ends, parts = await _parts(channel, vchannel, floor, step // 2)
    except NotNow:
        return TimeTick(0)  # what is too much goes when the log has been moved
    total = sum(it.bytes for it in parts)
    # When purged records of the first part are given back, it counts from the smaller estimate on.
    seen.quiet_bytes = min(seen.quiet_bytes, total + step)
    if total < max(bytes_max + step, seen.quiet_bytes):
        return TimeTick(0)
    # In the first part, what lies below the floor is purged. It counts here, but goes first.
    over = excess(parts, bytes_max)
    newer = sum(it.bytes for it in parts[over.whole + 1 :])
    upto = ends[over.whole - 1] if over.whole else TimeTick(0)
    if over.whole < len(parts) and (over.spare >= step or not over.whole):
        oldest = OldestRecords(vchannel, max(1, bytes_max // GRAINS))
        part = parts[over.whole]
        await _show(channel, oldest, max(part.base_id, floor), part.next_id)
        upto = max(upto, oldest.upto(newer, bytes_max))
    known = TimeTick(0) if purge is None else purge.upto
    seen.quiet_bytes = 0 if upto > known else total + step
    return min(upto, channel.tail.closed.tick)


async def _parts(
    channel: OpenChannel, vchannel: str, floor: MessageId, grown_by: int
) -> tuple[list[TimeTick], list[VChannelPart]]:
    """What each segment has of it behind an id, the oldest first, and where the segments end."""
    ends, parts = list[TimeTick](), list[VChannelPart]()
    for segment in channel.log.segments():
        if segment.next_id <= floor:
            continue
        part = (await channel.contents.sealed(channel.log, segment)).get(vchannel)
        if part is not None and part.next_id > floor:
            ends.append(segment.last_tick)
            parts.append(part)
    part = (await channel.contents.active(channel.log, grown_by)).get(vchannel)
    if part is not None and part.next_id > floor:
        # Nothing is removed whole of what still grows.
        ends.append(TimeTick(0))
        parts.append(part)
    return ends, parts


async def _show(
    channel: OpenChannel, oldest: OldestRecords, at: MessageId, until_id: MessageId
) -> None:
    for _ in range(LOOKS_MAX):
        heads = await channel.heads(at)
        for head in heads:
            if head.base_id >= until_id:
                return
            oldest.show(head)
        if not heads:
            return
        at = heads[-1].next_id
