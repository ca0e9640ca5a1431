"""Questions about positions: what a channel holds, which id a tick has, how far some bytes reach.

It never reads a message. Next: broker/client/net/owners.py
"""

from collections.abc import Iterable, Sequence

from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.model.channel import ChannelOffsets
from broker.model.ids import MessageId, PChannelName, Term, TimeTick
from schemas.generated.tidemark import v1

_SERVICE = "/tidemark.v1.Log/"


class Offsets:
    """Each call has its own deadline and raises what `errors` has."""

    def __init__(self, owners: Owners, *, deadline_s: float) -> None:
        self._owners = owners
        self._deadline_s = deadline_s

    async def describe(self, channels: Iterable[str]) -> dict[str, ChannelOffsets]:
        """What each channel holds now, by the name asked; a vchannel reports its pchannel's ids.

        Ids in [first_id, next_id) are durable, and so is everything up to `closed_tick`.
        """

        async def ask(connection: Connection, names: Sequence[str]) -> Sequence[v1.ChannelOffsets]:
            answer = await connection.call(
                _SERVICE + "Describe",
                v1.DescribeRequest(channels=list(names)),
                v1.DescribeResponse,
                deadline_s=self._deadline_s,
            )
            return answer.channels

        wanted = list(channels)
        found = {
            name: _offsets(it)
            for names, answers in await self._owners.ask(wanted, ask)
            for name, it in zip(names, answers, strict=True)
        }
        return {name: found[name] for name in wanted}

    async def seek(self, channel: str, tick: int) -> MessageId:
        """The first id whose tick is >= `tick`; the channel's next id when none is."""

        async def ask(connection: Connection, _: Sequence[str]) -> int:
            answer = await connection.call(
                _SERVICE + "Seek",
                v1.SeekRequest(channel=channel, time_tick=tick),
                v1.SeekResponse,
                deadline_s=self._deadline_s,
            )
            return answer.message_id

        ((_, found),) = await self._owners.ask([channel], ask)
        return MessageId(found)

    async def advance(self, channel: str, from_id: int, until_id: int, bytes_max: int) -> MessageId:
        """The largest record end in (from_id, until_id] with about `bytes_max` stored bytes before.

        At least one record; `from_id` itself when nothing lies there.
        """

        async def ask(connection: Connection, _: Sequence[str]) -> int:
            answer = await connection.call(
                _SERVICE + "Advance",
                v1.AdvanceRequest(
                    channel=channel, from_id=from_id, bytes_max=bytes_max, until_id=until_id
                ),
                v1.AdvanceResponse,
                deadline_s=self._deadline_s,
            )
            return answer.message_id

        ((_, found),) = await self._owners.ask([channel], ask)
        return MessageId(found)


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
    )
