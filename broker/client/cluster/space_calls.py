"""Purges collections: their oldest messages are gone, and the disk gets their space back."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from broker.client.cluster.collections import Collections
from broker.client.cluster.service import ServiceCalls
from broker.client.errors import BadTarget
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.client.start_time import Time, tick_at
from broker.model.ids import MessageId, TimeTick
from schemas.generated.tidemark import v1

SERVICE: Final = "tidemark.v1.Space"


@dataclass(frozen=True, slots=True)
class Purged:
    """Messages of `vchannel` up to the tick `upto` are gone; `next_id`: the first id behind it."""

    vchannel: str
    upto: TimeTick
    next_id: MessageId


class Purges:
    """Purges within a deadline; raises what `broker.client.errors` has."""

    def __init__(self, owners: Owners, collections: Collections, *, deadline_s: float) -> None:
        self._owners, self._collections = owners, collections
        self._deadline_s = deadline_s

    async def purge(
        self,
        target: str,
        *,
        upto: int | Time | None = None,
        before_id: int | None = None,
        database: str = "",
    ) -> list[Purged]:
        """Remove the oldest messages of a collection or a vchannel, for good.

            cut = await log.cut("flights")
            await log.purge("flights", upto=cut.tick)

        `upto`: a tick, which must be closed; or a time: messages from before it. `before_id`:
        messages with a smaller id, of a vchannel or a collection of one shard. Durable when it
        returns; readers then begin behind it, and one that asks for what is gone gets
        Unrecoverable. Definitions, groups and later messages stay. The disk gets the space back
        within a few `retention_check_s`.

        All vchannels are asked first. Raises ResourceAcquired, with nothing purged, while a reader,
        a group, a named cursor, an open transaction or a staged batch needs some of it;
        InvalidArgument for what is not closed or not written yet; NoSuchCollection; BadTarget.
        Purging again, after an error, completes what was done in part.
        """
        vchannels = await self._vchannels(target, database)
        if (upto is None) == (before_id is None):
            raise BadTarget("a purge has one end: name `upto` or `before_id`")
        if before_id is not None and len(vchannels) > 1:
            raise BadTarget(
                f"{target!r} has {len(vchannels)} vchannels, and each has ids of its own; name one"
                " of them, or purge up to a tick"
            )
        ticks = None if upto is None else _tick_of(upto)
        await self._each(vchannels, ticks, before_id, only_check=True)
        return await self._each(vchannels, ticks, before_id)

    async def _each(
        self,
        vchannels: Sequence[str],
        upto: int | None,
        before_id: int | None,
        *,
        only_check: bool = False,
    ) -> list[Purged]:
        async def ask(connection: Connection, names: Sequence[str]) -> list[v1.PurgeResponse]:
            calls = ServiceCalls(connection, SERVICE, deadline_s=self._deadline_s)
            requests = [
                v1.PurgeRequest(
                    vchannel=name, upto_tick=upto, before_id=before_id, only_check=only_check
                )
                for name in names
            ]
            return [await calls.ask("Purge", it, v1.PurgeResponse) for it in requests]

        answers = await self._owners.ask(vchannels, ask)
        found = [
            Purged(it.vchannel, TimeTick(it.upto_tick), MessageId(it.next_id))
            for _, answer in answers
            for it in answer
        ]
        return sorted(found, key=lambda it: it.vchannel)

    async def _vchannels(self, target: str, database: str) -> Sequence[str]:
        if database:
            return (await self._collections.get(target, database=database)).vchannels
        return (await self._collections.targets.current(target)).vchannels


def _tick_of(end: int | Time) -> int:
    if isinstance(end, str | datetime):
        return max(0, tick_at(end) - 1)
    if end < 0:
        raise BadTarget(f"upto is {end}; ticks are not negative")
    return end
