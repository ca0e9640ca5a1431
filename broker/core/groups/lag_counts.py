"""Counts what lies above the floors of groups, in one pass over the heads of a log's records.

One count serves all groups of a pchannel. It begins at the lowest floor, takes new records as they
come, and counts in steps, which become larger as it grows: then it is time for a new one.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

from broker.core.time.span_count import SpanCount, SpanLimit, StepSize
from broker.model.groups.consumer_group import GroupLag
from broker.model.ids import TICK_LOGICAL_BITS, TimeTick
from broker.model.measured import RecordHead, SpanStep
from broker.model.message import (
    BODY_TYPES,
    LOG_STEPS,
    RELEASED,
    SELF_CONTROLLED_TYPES,
    MessageType,
)

STEP_ROWS: Final = 64
STEPS_MAX: Final = 32_768
"""Of all vchannels together."""
STEPS_OF_ONE: Final = (16, 1024)
WORN: Final = 8
"""A count of so many times more messages than are left has steps that are too large."""
ENDLESS: Final = TimeTick((1 << 63) - 1)
_SHOWS_NOTHING: Final = (
    SELF_CONTROLLED_TYPES
    | (LOG_STEPS - {RELEASED})
    | {MessageType.BEGIN_TXN, MessageType.ROLLBACK_TXN}
)


class LagCounts:
    """`floors`: the lowest one of each vchannel that has groups; at least one."""

    def __init__(self, floors: Mapping[str, TimeTick]) -> None:
        self.after = TimeTick(min(floors.values()))
        least, most = STEPS_OF_ONE
        steps = max(least, min(most, STEPS_MAX // len(floors)))
        span = (self.after, ENDLESS)
        grain = StepSize(STEP_ROWS, steps_max=steps)
        self._counted = SpanCount(tuple(floors), span, grain, SpanLimit())
        self._steps: dict[str, tuple[SpanStep, ...]] = dict.fromkeys(floors, ())
        self._newest: dict[str, TimeTick] = {}
        self._newest_of_all = TimeTick(0)

    def take(self, head: RecordHead, *, hidden: bool) -> None:
        """Count a record, in log order. `hidden`: readers do not get it."""
        self._counted.take(head, hidden=hidden)
        if hidden or not _may_be_delivered(head):
            return
        if head.vchannel in self._steps:
            self._newest[head.vchannel] = head.last_tick
        elif not head.vchannel:
            self._newest_of_all = head.last_tick

    def taken(self) -> None:
        """Some records were counted: from now on `above` includes them."""
        self._steps = {name: it.steps for name, it in self._counted.channels().items()}

    def serves(self, floors: Mapping[str, TimeTick]) -> bool:
        """Whether this count tells enough of these floors, the lowest one of each vchannel."""
        if not all(self.covers(name, floor) for name, floor in floors.items()):
            return False
        counted = sum([steps[-1].rows for steps in self._steps.values() if steps])
        left = sum([self._above(name, floor)[0] for name, floor in floors.items()])
        return counted <= WORN * left + STEP_ROWS * STEPS_MAX

    def covers(self, vchannel: str, floor: TimeTick) -> bool:
        """Whether what lies above this floor was counted."""
        return vchannel in self._steps and floor >= self.after

    def is_idle(self, vchannel: str, floor: TimeTick) -> bool:
        """Whether nothing above the floor was taken that a group may have to deliver.

        Also what lag does not count: copies of delayed messages, and what goes to the readers of
        all vchannels.
        """
        newest = max(self._newest.get(vchannel, floor), self._newest_of_all)
        return self.covers(vchannel, floor) and newest <= floor

    def lag(self, vchannel: str, floor: TimeTick, closed: TimeTick) -> GroupLag:
        """What lies above the floor; within a step it is divided evenly."""
        rows, size, first = self._above(vchannel, floor)
        if not rows:
            return GroupLag(0, 0, 0)
        since = max(floor, first)
        ms = (closed >> TICK_LOGICAL_BITS) - (since >> TICK_LOGICAL_BITS)
        return GroupLag(rows, size, max(0, ms))

    def _above(self, vchannel: str, floor: TimeTick) -> tuple[int, int, TimeTick]:
        """Messages, bytes, and the tick of the first message that was counted."""
        steps = self._steps[vchannel]
        if not steps:
            return 0, 0, TimeTick(0)
        at = bisect_right(steps, floor, key=lambda it: it.tick)
        below = steps[at - 1] if at else SpanStep(TimeTick(0), TimeTick(0), 0, 0)
        rows, size = steps[-1].rows - below.rows, steps[-1].bytes - below.bytes
        if at < len(steps) and steps[at].first_tick <= floor:
            step = steps[at]
            passed, of = floor - step.first_tick + 1, step.tick - step.first_tick + 1
            rows -= (step.rows - below.rows) * passed // of
            size -= (step.bytes - below.bytes) * passed // of
        return rows, size, steps[0].first_tick


def _may_be_delivered(head: RecordHead) -> bool:
    """Whether a group may have to deliver something at the tick of this record.

    Of a transaction that is so at its commit, which lies behind everything that is closed now.
    """
    inside = head.txn is not None and head.kind in BODY_TYPES
    return not inside and head.kind not in _SHOWS_NOTHING
