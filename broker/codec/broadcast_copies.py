"""Append the copies of a broadcast at the nodes that serve their vchannels.

A copy is the message that all copies share, its vchannel, and a header with the broadcast's id and
the keys it holds. A failed append is reported, not retried.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import anyio

from broker.codec.owner_appends import Owners, append_at_owners
from broker.core.cluster.resource_locks import locked_keys
from broker.model.broadcast import BroadcastCopy, ResourceKey
from broker.model.failure import Refusal, Refused
from broker.model.ids import BroadcastId, NodeId, PChannelName, TimeTick, VChannelName
from broker.model.message import Appended, NewMessage
from schemas.encoding.entries import write_entry
from schemas.properties.broadcast_header import BroadcastHeader, HeaderKey, write_broadcast_header
from schemas.properties.keys import BROADCAST, VCHANNEL

APPEND_S: Final = 30.0
STORED_PROPERTY: Final = b"\x1a"


class NodeCopies:
    """Appends at the nodes that serve the pchannels; `owners` is called for each request."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    async def append(self, copies: Sequence[BroadcastCopy]) -> Sequence[Appended | Refusal]:
        """See Copies."""
        return await append_at_owners(self._owners, [new_message(copy) for copy in copies])

    async def processed(self, pchannels: Sequence[PChannelName]) -> Mapping[PChannelName, TimeTick]:
        """See Copies."""
        owners = await self._owners()
        asked: dict[NodeId, list[PChannelName]] = defaultdict(list)
        for name in pchannels:
            if name in owners:
                asked[owners[name].node_id].append(name)
        ticks: dict[PChannelName, TimeTick] = {}

        async def look(names: Sequence[PChannelName]) -> None:
            try:
                found = await owners[names[0]].describe(names)
            # Left out, not reported: the caller asks again for channels without a tick.
            except Refused:
                return
            ticks.update({name: it.observed_tick for name, it in found.items()})

        async with anyio.create_task_group() as tasks:
            for names in asked.values():
                tasks.start_soon(look, names)
        return ticks


def new_message(copy: BroadcastCopy) -> NewMessage:
    """A copy as an Appender takes it."""
    broadcast = copy.broadcast
    header = _header(copy.broadcast_id, broadcast.vchannels, broadcast.keys, broadcast.ack_sync_up)
    own = write_entry(STORED_PROPERTY, VCHANNEL.key, copy.vchannel)
    added = len(VCHANNEL.key) + len(copy.vchannel.encode()) + len(BROADCAST.key) + len(header)
    return NewMessage(
        vchannel=copy.vchannel,
        type=broadcast.type,
        body=b"".join((broadcast.body, own, write_entry(STORED_PROPERTY, BROADCAST.key, header))),
        size=broadcast.size + added,
        pchannel_level=broadcast.pchannel_level,
    )


@lru_cache(maxsize=64)
def _header(
    broadcast_id: BroadcastId,
    vchannels: tuple[VChannelName, ...],
    keys: tuple[ResourceKey, ...],
    ack_sync_up: bool,
) -> str:
    """Cached: all copies of a broadcast have the same header."""
    held = tuple(HeaderKey(int(it.domain), it.key, it.shared) for it in locked_keys(keys))
    return write_broadcast_header(BroadcastHeader(broadcast_id, vchannels, held, ack_sync_up))
