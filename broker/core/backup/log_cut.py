"""Where a log is cut at a tick: the segments that are kept whole, and the end in the one after.

Ids and ticks of a log grow together, so what lies up to a tick is always a front part of it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broker.model.ids import MessageId, Term, TimeTick


@dataclass(frozen=True, slots=True)
class CutEnd:
    """The end of a log: the byte behind its last record in its last file, and what comes next."""

    offset: int
    next_id: MessageId
    last_tick: TimeTick
    last_term: Term


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """One record: its first tick, and the end of the log behind it."""

    base_tick: TimeTick
    behind: CutEnd


class SplitRecord(Exception):
    """The tick lies inside of a record, so it is no tick that was closed."""


def whole_segments(last_ticks: Sequence[TimeTick], tick: TimeTick) -> int:
    """How many segments, oldest first, lie up to the tick as a whole; each has its last tick."""
    return bisect_right(last_ticks, tick)


def end_up_to(records: Iterable[RecordPlace], tick: TimeTick, start: CutEnd) -> CutEnd:
    """The end of the log behind its last record up to the tick; `start` when there is none.

    `records` continue at `start`; none behind the cut is looked at but the first. SplitRecord.
    """
    end = start
    for record in records:
        if record.base_tick > tick:
            break
        if record.behind.last_tick > tick:
            first, last = record.base_tick, record.behind.last_tick
            raise SplitRecord(f"tick {tick} lies inside of a record with ticks {first} to {last}")
        end = record.behind
    return end
