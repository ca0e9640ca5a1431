"""Copies of a broadcast to the logs of the nodes that serve them, near or far.

Owns how a copy looks on a log: the message that all share, its vchannel, and a header with the id
and the keys that are held. Never decides when to try again. Next: broker/ports/nodes.py
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import anyio

from broker.core.naming import pchannel_of
from broker.core.resource_locks import locked_keys
from broker.model.broadcast import Copy, ResourceKey
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import BroadcastId, NodeId, PChannelName, TimeTick, VChannelName
from broker.model.message import Appended, NewMessage
from broker.ports.nodes import NodeControl
from schemas.broadcast_header import BroadcastHeader, HeaderKey, write_broadcast_header
from schemas.entries import write_entry
from schemas.properties import BROADCAST, VCHANNEL

APPEND_S: Final = 30.0
PART_BYTES_MAX: Final = 4 * 1024 * 1024
"""A node takes frames of twice its largest message, which one more copy still fits into."""
STORED_PROPERTY: Final = b"\x1a"

Owners = Callable[[], Awaitable[Mapping[PChannelName, NodeControl]]]
"""The node that serves each pchannel now; those that nobody serves are left out."""


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
        asked: dict[NodeId, list[PChannelName]] = defaultdict(list)
        for name in pchannels:
            if name in owners:
                asked[owners[name].node_id].append(name)
        ticks: dict[PChannelName, TimeTick] = {}

        async def look(names: Sequence[PChannelName]) -> None:
            try:
                found = await owners[names[0]].describe(names)
            except Refused:
                return
            ticks.update({name: it.observed_tick for name, it in found.items()})

        async with anyio.create_task_group() as tasks:
            for names in asked.values():
                tasks.start_soon(look, names)
        return ticks


async def _append_at(
    node: NodeControl | None, pchannel: PChannelName, copies: Sequence[Copy]
) -> Sequence[Appended | Refusal]:
    if node is None:
        cause = f"{pchannel}: no node serves it now"
        return [Refusal(StreamingCode.CHANNEL_NOT_EXIST, cause)] * len(copies)
    outcomes: list[Appended | Refusal] = []
    for part in _parts([new_message(copy) for copy in copies]):
        outcomes += await _append_part(node, pchannel, part)
    return outcomes


async def _append_part(
    node: NodeControl, pchannel: PChannelName, part: Sequence[NewMessage]
) -> Sequence[Appended | Refusal]:
    try:
        outcomes = await node.append(pchannel, part)
    except Refused as error:
        return [error.refusal] * len(part)
    if len(outcomes) != len(part):
        cause = f"{pchannel}: {len(outcomes)} outcomes of {len(part)} copies"
        return [Refusal(StreamingCode.UNKNOWN, cause)] * len(part)
    return outcomes


def _parts(messages: Sequence[NewMessage]) -> Iterator[Sequence[NewMessage]]:
    """As many at once as one call may carry, and one at least."""
    part: list[NewMessage] = []
    left = PART_BYTES_MAX
    for message in messages:
        if part and message.size > left:
            yield part
            part, left = [], PART_BYTES_MAX
        part.append(message)
        left -= message.size
    if part:
        yield part


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
