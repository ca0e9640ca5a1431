"""Copies of a broadcast to the logs of this process, or of the nodes of the cluster.

Owns how a copy looks on a log: the message that all share, its vchannel, and a header with the id
and the keys that are held. Never decides when to try again. Next: broker/node/intake.py
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import anyio

from actors import ActorError
from broker.core.naming import pchannel_of
from broker.core.resource_locks import locked_keys
from broker.edge.reach import Reach
from broker.model.broadcast import Copy, ResourceKey
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import BroadcastId, PChannelName, TimeTick, VChannelName
from broker.model.message import Appended, NewMessage
from broker.node.intake import append
from broker.node.messages import CollectStatus, Locate
from broker.ports.nodes import NodeControl
from schemas.broadcast_header import BroadcastHeader, HeaderKey, write_broadcast_header
from schemas.entries import write_entry
from schemas.properties import BROADCAST, VCHANNEL

APPEND_S: Final = 30.0
STORED_PROPERTY: Final = b"\x1a"

Owners = Callable[[], Awaitable[Mapping[PChannelName, NodeControl]]]
"""The node that serves each pchannel now; those that nobody serves are left out."""


class LocalCopies:
    """Copies (`broker/ports/copies.py`) through the Directory of this process's node."""

    def __init__(self, directory: Reach) -> None:
        self._directory = directory

    async def append(self, copies: Sequence[Copy]) -> Sequence[Appended | Refusal]:
        by_pchannel: dict[PChannelName, list[Copy]] = defaultdict(list)
        for copy in copies:
            by_pchannel[pchannel_of(copy.vchannel)].append(copy)
        outcomes: dict[str, Appended | Refusal] = {}

        async def on(pchannel: PChannelName, mine: list[Copy]) -> None:
            found = await self._append_on(pchannel, mine)
            outcomes.update(zip([copy.vchannel for copy in mine], found, strict=True))

        async with anyio.create_task_group() as tasks:
            for pchannel, mine in by_pchannel.items():
                tasks.start_soon(on, pchannel, mine)
        return [outcomes[copy.vchannel] for copy in copies]

    async def processed(self, pchannels: Sequence[PChannelName]) -> Mapping[PChannelName, TimeTick]:
        try:
            status = await self._directory.demand(CollectStatus())
        except (ActorError, Refused):
            return {}
        ticks = {it.channel.name: it.observed_tick for it in status.channels}
        return {name: ticks[name] for name in pchannels if name in ticks}

    async def _append_on(
        self, pchannel: PChannelName, copies: Sequence[Copy]
    ) -> Sequence[Appended | Refusal]:
        try:
            located = await self._directory.demand(Locate(pchannel, None))
        except Refused as error:
            return [error.refusal] * len(copies)
        except ActorError as error:
            return [Refusal(StreamingCode.INNER, str(error))] * len(copies)
        written = tuple([new_message(copy) for copy in copies])
        return await append(located, written, deadline_s=APPEND_S)


class NodeCopies:
    """Copies through the nodes that serve the pchannels; `owners` says which, asked each time."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    async def append(self, copies: Sequence[Copy]) -> Sequence[Appended | Refusal]:
        """See Copies."""
        by_pchannel: dict[PChannelName, list[Copy]] = defaultdict(list)
        for copy in copies:
            by_pchannel[pchannel_of(copy.vchannel)].append(copy)
        owners = await self._owners()
        outcomes: dict[str, Appended | Refusal] = {}

        async def on(pchannel: PChannelName, mine: list[Copy]) -> None:
            found = await _append_at(owners.get(pchannel), pchannel, mine)
            outcomes.update(zip([copy.vchannel for copy in mine], found, strict=True))

        async with anyio.create_task_group() as tasks:
            for pchannel, mine in by_pchannel.items():
                tasks.start_soon(on, pchannel, mine)
        return [outcomes[copy.vchannel] for copy in copies]

    async def processed(self, pchannels: Sequence[PChannelName]) -> Mapping[PChannelName, TimeTick]:
        """See Copies."""
        owners = await self._owners()
        nodes = {node.node_id: node for name, node in owners.items() if name in pchannels}
        ticks: dict[PChannelName, TimeTick] = {}

        async def look(node: NodeControl) -> None:
            try:
                status = await node.status()
            except Refused:
                return
            for it in status:
                if owners.get(it.channel.name) is node:
                    ticks[it.channel.name] = it.recovery_tick

        async with anyio.create_task_group() as tasks:
            for node in nodes.values():
                tasks.start_soon(look, node)
        return {name: ticks[name] for name in pchannels if name in ticks}


async def _append_at(
    node: NodeControl | None, pchannel: PChannelName, copies: Sequence[Copy]
) -> Sequence[Appended | Refusal]:
    if node is None:
        cause = f"{pchannel}: no node serves it now"
        return [Refusal(StreamingCode.CHANNEL_NOT_EXIST, cause)] * len(copies)
    written = [new_message(copy) for copy in copies]
    try:
        outcomes = await node.append(pchannel, written)
    except Refused as error:
        return [error.refusal] * len(copies)
    if len(outcomes) != len(copies):
        cause = f"{pchannel}: {len(outcomes)} outcomes of {len(copies)} copies"
        return [Refusal(StreamingCode.UNKNOWN, cause)] * len(copies)
    return outcomes


def new_message(copy: Copy) -> NewMessage:
    """One copy as an Appender takes it."""
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
    """All copies of a broadcast have the same."""
    held = tuple(HeaderKey(int(it.domain), it.key, it.shared) for it in locked_keys(keys))
    return write_broadcast_header(BroadcastHeader(broadcast_id, vchannels, held, ack_sync_up))
