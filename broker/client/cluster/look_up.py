"""Asks the cluster what a name stands for: the coordinator, and for some vchannels their log."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from broker.client.cluster.retrying import retried
from broker.client.cluster.service import ServiceCalls
from broker.client.cluster.targets import Shards
from broker.client.errors import (
    ChannelNotExist,
    NoSuchCollection,
    NoSuchVChannel,
    NotOffered,
    ServerFailed,
    TidemarkError,
)
from broker.client.net.connection import Connection
from broker.client.net.owners import Owners
from broker.core.naming import looks_like_channel
from broker.model.collection import Collection
from broker.model.ids import VChannelName
from schemas.generated.tidemark import v1

_BROAD: Final = {
    v1.NameKind.PCHANNEL: "a pchannel",
    v1.NameKind.CONTROL: "the control channel",
}

FindCollection = Callable[[str], Awaitable[Collection]]
"""Asks the server for a collection; raises NoSuchCollection."""


class NameLookup:
    """Each look-up has a deadline and raises what `broker.client.errors` has."""

    def __init__(
        self, calls: ServiceCalls, find: FindCollection, owners: Owners, *, deadline_s: float
    ) -> None:
        self._calls = calls
        self._find = find
        self._owners = owners
        self._deadline_s = deadline_s

    async def shards(self, name: str) -> Shards:
        """What the name stands for. Raises NoSuchCollection, NoSuchVChannel."""
        # Every channel's name has a '-'. A server of an earlier release answers this call as well.
        if "-" not in name:
            return _of_collection(await self._find(name))
        try:
            found = await self._calls.ask("Find", v1.FindRequest(name=name), v1.FindResponse)
        except NotOffered:
            # A server of an earlier release: any channel exists there, and no such collection.
            return Shards(None, (VChannelName(name),))
        except ChannelNotExist as error:
            kind = NoSuchVChannel if looks_like_channel(name) else NoSuchCollection
            raise kind(error.cause, error.code) from None
        collection = found.collection
        if found.kind == v1.NameKind.COLLECTION and collection is not None:
            vchannels = tuple([VChannelName(it) for it in collection.vchannels])
            rows_of = collection.name if collection.schema is not None else None
            return Shards(collection.name, vchannels, rows_of=rows_of)
        if found.kind == v1.NameKind.OTHER_VCHANNEL:
            await self._check_named(name)
        rows = collection is not None and collection.schema is not None
        return Shards(
            None,
            (VChannelName(name),),
            rows_of=collection.name if collection is not None and rows else None,
            broad=_BROAD.get(found.kind, ""),
        )

    async def _check_named(self, vchannel: str) -> None:
        """Raise NoSuchVChannel unless a message of its log has named the vchannel."""

        async def ask(connection: Connection, _: Sequence[str]) -> bool:
            node = ServiceCalls(connection, "tidemark.v1.Log", deadline_s=self._deadline_s)
            request = v1.HasVChannelRequest(vchannel=vchannel)
            try:
                return (await node.ask("HasVChannel", request, v1.HasVChannelResponse)).named
            except NotOffered:
                return True  # a node of an earlier release, which cannot tell

        async def attempt() -> bool:
            ((_, named),) = await self._owners.ask([vchannel], ask)
            return named

        if not await retried(attempt, self._deadline_s, may_retry=_still_searching):
            raise NoSuchVChannel(
                f"there is no vchannel {vchannel!r}: no collection has it, and no message was"
                " appended to it; name a collection, or use raw_append or NewVChannel to make it"
            )


def _still_searching(error: TidemarkError) -> bool:
    return isinstance(error, ServerFailed)


def _of_collection(found: Collection) -> Shards:
    rows_of = found.name if found.schema is not None else None
    return Shards(found.name, found.vchannels, rows_of=rows_of)
