"""Positions in channels: what a channel holds, which id a tick has, how far some bytes reach.

Answered by the owners from the log's index; no message is read.
"""

from collections.abc import Iterable, Sequence

from broker.client.cluster.service import ServiceCalls
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.model.channel import ChannelOffsets
from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from schemas.generated.tidemark import v1


class Offsets:
    """`log.offsets`. Every call has a deadline and raises what `broker.client.errors` has."""

    def __init__(self, owners: Owners, *, deadline_s: float) -> None:
        self._owners = owners
        self._deadline_s = deadline_s

    async def describe(self, channels: Iterable[str]) -> dict[str, ChannelOffsets]:
        """What each channel holds now. Ids are those of its pchannel, also for a vchannel.

        Messages with ids in [first_id, next_id) are durable, and so is everything up to
        `closed_tick`.
        """

        async def ask(connection: Connection, names: Sequence[str]) -> Sequence[v1.ChannelOffsets]:
            request = v1.DescribeRequest(channels=list(names))
            return (
                await self._at(connection).ask("Describe", request, v1.DescribeResponse)
            ).channels

        wanted = list(channels)
        found = {
            name: _offsets(it)
            for names, answers in await self._owners.ask(wanted, ask)
            # The server answers in the order of the request.
            for name, it in zip(names, answers, strict=True)
        }
        return {name: found[name] for name in wanted}

    async def seek(self, channel: str, tick: int) -> MessageId:
        """The first id whose tick is >= `tick`; the channel's next id when there is none."""
        request = v1.SeekRequest(channel=channel, time_tick=tick)

        async def ask(connection: Connection, _: Sequence[str]) -> int:
            return (await self._at(connection).ask("Seek", request, v1.SeekResponse)).message_id

        ((_, found),) = await self._owners.ask([channel], ask)
        return MessageId(found)

    async def advance(self, channel: str, from_id: int, until_id: int, bytes_max: int) -> MessageId:
        """The id up to which about `bytes_max` stored bytes lie behind `from_id`.

        It is the end of a record in (from_id, until_id], behind at least one record; `from_id`
        when nothing lies there.
        """
        request = v1.AdvanceRequest(
            channel=channel, from_id=from_id, bytes_max=bytes_max, until_id=until_id
        )

        async def ask(connection: Connection, _: Sequence[str]) -> int:
            return (
                await self._at(connection).ask("Advance", request, v1.AdvanceResponse)
            ).message_id

        ((_, found),) = await self._owners.ask([channel], ask)
        return MessageId(found)

    def _at(self, connection: Connection) -> ServiceCalls:
        return ServiceCalls(connection, "tidemark.v1.Log", deadline_s=self._deadline_s)


def _offsets(it: v1.ChannelOffsets) -> ChannelOffsets:
    return ChannelOffsets(
        name=PChannelName(it.channel),
        term=Term(it.term),
        first_id=MessageId(it.first_id),
        next_id=MessageId(it.next_id),
        closed_tick=TimeTick(it.closed_tick),
        size_bytes=it.size_bytes,
        last_confirmed_id=MessageId(it.last_confirmed_id),
        open_txns=it.open_txns,
        open_txn_bytes=it.open_txn_bytes,
        prepared_txns=it.prepared_txns,
        removed_tick=TimeTick(it.removed_tick),
        purged_tick=TimeTick(it.purged_tick),
    )
