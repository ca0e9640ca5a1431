"""Who holds what is dead of a pchannel, or what is to be purged: readers, groups and cursors."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import anyio

from broker.core.groups.group_state import GroupState
from broker.model.ids import MessageId, TimeTick
from broker.model.retention.holders import Hold, HolderKind
from broker.model.retention.policy import LogStart
from broker.node.space.given_back import ANSWER_S
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import HoldingReader, OpenChannel
from broker.node.truncation import holds_of_groups, located, reader_holds


async def holds_on(
    channel: OpenChannel, node: NodeRuntime, names: Collection[str], end: MessageId
) -> Sequence[Hold]:
    """The holds on these vchannels, each with the first id that it needs; `end` for later ones.

    Raises Refused and TimeoutError when the holders are not known, and LogClosed.
    """
    bytes_max = node.retention.hold_bytes_max
    bounds, name = channel.log.bounds(), channel.channel.name
    with anyio.fail_after(ANSWER_S):
        found = await node.holds.of({name: LogStart(bounds.first_id, bounds.removed_tick)})
    own = reader_holds(channel, bytes_max) if bytes_max else []
    groups = _group_holds(channel, names, bytes_max) if bytes_max else []
    holds, _ = await located(channel.log, [*own, *groups, *found.get(name, ())], end)
    return holds


@dataclass(frozen=True, slots=True)
class Need:
    """A hold; `read_to`: the holder has everything up to this tick."""

    hold: Hold
    read_to: TimeTick


async def needs_of(
    channel: OpenChannel, node: NodeRuntime, vchannel: str, end: MessageId
) -> Sequence[Need]:
    """Who may need messages of a vchannel below an id. Raises as `holds_on`."""
    readers = [
        Need(_hold_of(it, needed, node.retention.hold_bytes_max), it.read_to)
        for it in channel.readers
        if node.retention.hold_bytes_max and (needed := it.needed_from) is not None
    ]
    others = [
        it
        for it in await holds_on(channel, node, {vchannel}, end)
        if it.kind is not HolderKind.READER
    ]
    needs = [*readers, *(Need(it, it.tick) for it in others)]
    return [
        it
        for it in needs
        if it.hold.from_id < end and (not it.hold.vchannels or vchannel in it.hold.vchannels)
    ]


def _hold_of(reader: HoldingReader, needed: MessageId, bytes_max: int) -> Hold:
    kind, name, vchannels = HolderKind.READER, f"of {reader.reads}", reader.vchannels
    return Hold(kind, name, from_id=needed, bytes_max=bytes_max, vchannels=vchannels)


def _group_holds(channel: OpenChannel, names: Collection[str], bytes_max: int) -> list[Hold]:
    """Of the groups that are furthest behind on each vchannel."""
    states = defaultdict[str, list[GroupState]](list)
    for it in channel.groups.table.groups.values():
        if it.key.vchannel in names:
            states[it.key.vchannel].append(it)
    segments = channel.log.segments()
    return [hold for some in states.values() for hold in holds_of_groups(some, segments, bytes_max)]
