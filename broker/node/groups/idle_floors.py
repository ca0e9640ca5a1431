"""Raises the floors of groups that have nothing to do, so that they hold back no part of the log.

A group whose vchannel is quiet would hold the log, which other vchannels share, at its last
acknowledgement. What is written is an acknowledgement of ticks at which nothing lies, so it is
right whatever happens to the group meanwhile.
"""

from functools import partial
from typing import Final

from actors import Clock
from broker.core.groups.group_changes import MessagesAcked
from broker.core.groups.group_state import GroupState
from broker.core.groups.lag_counts import LagCounts
from broker.core.groups.schedule_name import SCHEDULE
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import GroupKey, TickSpan
from broker.model.ids import TimeTick
from broker.node.groups.group_writer import GroupWriter
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel

RAISED_MAX: Final = 256
"""Groups of one look."""


def raise_idle_floors(
    opened: OpenChannel, counts: LagCounts, node: NodeRuntime, clock: Clock
) -> int:
    """Begin to write the floors of groups that are idle; returns how many.

    `counts` must have counted every record of the log. Only a floor in a sealed segment holds
    anything back, so a group is written once for each segment at the most.
    """
    segments = opened.log.segments()
    if not segments:
        return 0
    bound, closed = segments[-1].last_tick, opened.tail.closed.tick
    found: list[GroupState] = []
    for key, state in opened.groups.table.groups.items():
        held = state.floor <= bound and state.floor < closed
        if held and key.name != SCHEDULE and counts.is_idle(key.vchannel, state.floor):
            found.append(state)
        if len(found) == RAISED_MAX:
            break
    writer = GroupWriter(opened, node, clock)
    for state in found:
        change = MessagesAcked(state.key.name, (TickSpan(state.floor, closed),))
        # Not waited for, and not tried again before the next look.
        writer.write_then(
            state.key.vchannel, change, partial(_noted, opened, state.key, state.tick)
        )
    return len(found)


def _noted(opened: OpenChannel, key: GroupKey, before: TimeTick, refusal: Refusal | None) -> None:
    if refusal is None:
        opened.groups.raised(key, before)
