"""Counts what consumer groups have not acknowledged: a few seconds old, for lists and metrics.

It follows each log by the heads of its records, from the lowest floor on; no message is read. What
was counted once is not counted again, so an idle group costs nothing but a look. Floors of groups
with nothing above them are raised, see `idle_floors`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from actors import Actor, Context, Envelope
from broker.core.groups.lag_counts import LagCounts
from broker.core.groups.schedule_name import SCHEDULE
from broker.model.failure import Refused
from broker.model.ids import MessageId, PChannelName, TimeTick
from broker.node.groups.idle_floors import raise_idle_floors
from broker.node.queries.measure_channels import first_of_span, is_hidden
from broker.node.state.node_runtime import NodeRuntime
from broker.node.state.open_channels import OpenChannel

LOOK_S: Final = 5.0
HEADS_MAX: Final = 16_384
"""Of one look at one pchannel; a group that is far behind is counted over several looks."""


@dataclass(frozen=True, slots=True)
class LookAtLags:
    """A timer."""


@dataclass(slots=True)
class _Followed:
    """A log at one term, counted up to `next_id`."""

    opened: OpenChannel
    counts: LagCounts
    next_id: MessageId
    compactions: int
    whole: bool = False


class LagWatch(Actor[LookAtLags]):
    """One of a node. See the module."""

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._followed: dict[PChannelName, _Followed] = {}
        self._raised = 0

    async def started(self, context: Context[LookAtLags]) -> None:
        """Look soon, and every `LOOK_S`."""
        self._context = context
        context.after(LOOK_S, LookAtLags())

    async def receive(self, batch: Sequence[Envelope[LookAtLags]]) -> None:
        """Look at every pchannel with groups."""
        channels = {it.channel.name: it for it in self._node.open_channels.all()}
        self._followed = {name: it for name, it in self._followed.items() if name in channels}
        for name, opened in channels.items():
            try:
                await self._look(name, opened)
            except Refused:
                # Damaged, or closing: what is left cannot be told.
                self._followed.pop(name, None)
                _forget(opened)
        self._context.after(LOOK_S, LookAtLags())

    def statistics(self) -> Mapping[str, int | float | str]:
        """How many logs it follows, how many of them to their end, and floors that it raised."""
        whole = sum([it.whole for it in self._followed.values()])
        return {"channels": len(self._followed), "counted": whole, "raised": self._raised}

    async def _look(self, name: PChannelName, opened: OpenChannel) -> None:
        floors = _floors(opened)
        if not floors:
            self._followed.pop(name, None)
            return
        known = self._followed.get(name)
        if known is None or known.opened is not opened or not _goes_on(known, floors):
            counts, version = LagCounts(floors), opened.compactions.version
            next_id = await first_of_span(opened, counts.after, HEADS_MAX)
            known = self._followed[name] = _Followed(opened, counts, next_id, version)
        known.whole = await self._follow(known)
        if known.whole:
            _note(opened, known.counts)
            self._raised += raise_idle_floors(opened, known.counts, self._node, self._context.clock)

    async def _follow(self, known: _Followed) -> bool:
        """Count new records; False when some are left for the next look."""
        opened, left = known.opened, HEADS_MAX
        if known.next_id >= opened.tail.next_id:
            return True
        while known.next_id < opened.tail.next_id and left > 0:
            heads = await opened.heads(known.next_id)
            for head in heads[:left]:
                if head.next_id > known.next_id:
                    known.counts.take(head, hidden=is_hidden(self._node.headers, head))
                    known.next_id = head.next_id
            if not heads:
                break
            left -= len(heads)
            # Heads in the tail come without a wait.
            await anyio.lowlevel.checkpoint()
        known.counts.taken()
        return known.next_id >= opened.tail.next_id


def _goes_on(known: _Followed, floors: Mapping[str, TimeTick]) -> bool:
    """Whether to count on: also while the end was never reached, or new groups would prevent it.

    Behind a pass of compaction there may be less than was counted.
    """
    same = known.compactions == known.opened.compactions.version
    return not known.whole or (same and known.counts.serves(floors))


def _floors(opened: OpenChannel) -> dict[str, TimeTick]:
    """The lowest floor of each vchannel that has groups."""
    floors: dict[str, TimeTick] = {}
    for key, state in opened.groups.table.groups.items():
        if key.name != SCHEDULE:
            floors[key.vchannel] = min(floors.get(key.vchannel, state.floor), state.floor)
    return floors


def _note(opened: OpenChannel, counts: LagCounts) -> None:
    closed = opened.tail.closed.tick
    for key, state in opened.groups.table.groups.items():
        if key.name != SCHEDULE and counts.covers(key.vchannel, state.floor):
            notes = opened.groups.noted(key)
            notes.lag = counts.lag(key.vchannel, state.floor, closed)


def _forget(opened: OpenChannel) -> None:
    for notes in opened.groups.notes.values():
        notes.lag = None
