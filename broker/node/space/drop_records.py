"""Records in the log which messages of dropped vchannels are going to be given back.

As a purge, so that it is durable before anything goes, and recovery, snapshots and readers know it:
a reader that has not got the newest of these messages is refused as behind any purge. Without it,
what is left of the log looks to that reader as if it had read all.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from broker.model.ids import MessageId, TimeTick
from broker.model.retention.dead import Dead
from broker.node.space.newest_message import newest_tick
from broker.node.state.open_channels import OpenChannel

RecordDrop = Callable[[str, TimeTick], Awaitable[None]]
"""Purge a vchannel of a dropped collection up to a tick, durably. Raises DropUnrecorded."""


class DropUnrecorded(Exception):
    """Nothing of this drop may be given back now."""


@dataclass(slots=True)
class DropRecords:
    """For one pass over a log. `told`: below which id the messages of a vchannel are recorded.

    `count`: the purges that it has recorded; these are no reason for another pass.
    """

    channel: OpenChannel
    record: RecordDrop
    told: dict[str, MessageId] = field(default_factory=dict)
    count: int = 0

    async def add(self, free: Dead) -> Dead:
        """What may be given back of `free`: its messages are recorded now.

        Raises DropUnrecorded, WalError, Refused.
        """
        floors = dict(free.dropped)
        for vchannel, floor in free.dropped.items():
            # Nothing is recorded of what lies behind, as somebody may need it.
            end = min(floor, await self._before_open(vchannel, floor))
            if self.told.get(vchannel, MessageId(0)) < end:
                await self._tell(vchannel, end)
                self.told[vchannel] = end
            floors[vchannel] = await self._whole(end)
        return replace(free, dropped=floors)

    async def _before_open(self, vchannel: str, floor: MessageId) -> MessageId:
        """Where the oldest open transaction begins, which may still deliver."""
        transactions = self.channel.transactions
        views = (*transactions.views(), *transactions.unstored_ends())
        # The id of a transaction is the tick of its begin.
        begins = [it.context.id for it in views if it.vchannel == vchannel]
        return await self.channel.log.seek_tick(TimeTick(min(begins))) if begins else floor

    async def _whole(self, end: MessageId) -> MessageId:
        """Every transaction with a record below this id ends below `end`, so it is recorded."""
        records = await self.channel.log.read(end, 1)
        return min([end, *[it.last_confirmed_id for it in records[:1]]])

    async def _tell(self, vchannel: str, end: MessageId) -> None:
        purges = self.channel.purges
        known = purges.purges.get(vchannel)
        from_id = MessageId(0) if known is None else known.next_id
        newest = await newest_tick(self.channel, vchannel, from_id, end)
        if newest is None:
            newest = await self._tick_below(end)
        if newest and (known is None or known.upto < newest):
            before = purges.version
            await self.record(vchannel, newest)
            self.count += purges.version > before and purges.upto(vchannel) == newest

    async def _tick_below(self, end: MessageId) -> TimeTick:
        """There is too much to look at: no message below has a larger tick."""
        records = await self.channel.log.read(end, 1)
        closed = self.channel.tail.closed.tick
        return TimeTick(min([closed, *[it.base_tick - 1 for it in records[:1]]]))
