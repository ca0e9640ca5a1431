"""Chooses the tick at which a micro-batch ends on many channels, and splits a channel for readers.

Channels are known in coarse steps only. A tick inside a step counts the whole step, so the choice
stays within the limits whenever any possible choice does.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from broker.model.ids import BroadcastId, TimeTick
from broker.model.measured import AtomicMember, MeasuredChannel, MeasuredSpan, SpanStep, TickChoice

Interval = tuple[TimeTick, TimeTick]
"""Ticks from the first one on and below the second one."""


def choose(measured: MeasuredSpan, rows_max: int, bytes_max: int) -> TickChoice | None:
    """The largest tick with at most so many rows and bytes up to it (0: no limit).

    The tick splits no broadcast and no batch of staged rows: either all of its copies, or commits,
    lie up to the tick, or none. If every such tick exceeds the limits, the smallest one, so that a
    reader always makes progress. None if there is none up to `measured.exact`: measure further.
    """
    exact, after = measured.exact, measured.after
    forbidden = _joined(splitting(measured))
    steps = [it.steps for it in measured.channels.values()]
    ends = {step.tick for each in steps for step in each if after < step.tick <= exact}
    ticks = sorted(tick for tick in {*ends, exact} if tick > after and not _in(tick, forbidden))
    if not ticks:
        return None
    # Counts grow with the tick, so `_is_over` is false up to some tick and true from then on.
    beyond = bisect_right(ticks, False, key=lambda it: _is_over(it, steps, rows_max, bytes_max))
    return _choice(ticks[max(beyond - 1, 0)], steps)


def splitting(measured: MeasuredSpan) -> list[Interval]:
    """For each broadcast or batch, the ticks at which a cut would split it.

    If some copies were not seen, they may lie beyond what was measured, so the interval extends to
    the end. If all was measured, they lie before the span: then the copy that was seen is one that
    the coordinator appended twice.
    """
    firsts: dict[BroadcastId, dict[str, AtomicMember]] = {}
    for copy in sorted(measured.copies, key=lambda it: it.tick):
        # Readers skip repeated copies, so the first one on each vchannel counts.
        firsts.setdefault(copy.id, {}).setdefault(copy.vchannel, copy)
    complete = measured.exact >= measured.until
    found: list[Interval] = []
    for copies in firsts.values():
        ticks = [it.tick for it in copies.values()]
        whole = complete or len(copies) >= max(it.of for it in copies.values())
        last = max(ticks) if whole else TimeTick(measured.until + 1)
        found.append((min(ticks), last))
    return found


def split(channel: MeasuredChannel, span: Interval, parts: int) -> list[Interval]:
    """Split `span` into at most `parts` spans (after, until] with about equally many rows.

    They end at ends of steps: a step is never split.
    """
    after, until = span
    before = _rows_to(channel.steps, after)
    rows = _rows_to(channel.steps, until) - before
    bounds = [after]
    for part in range(1, parts):
        wanted = before + rows * part / parts
        at = bisect_left(channel.steps, wanted, key=lambda it: it.rows)
        # One large step may hold several of the wanted bounds; then there are fewer parts.
        if at < len(channel.steps) and bounds[-1] < channel.steps[at].tick < until:
            bounds.append(channel.steps[at].tick)
    return list(pairwise([*bounds, until]))


def extended(before: MeasuredSpan, more: MeasuredSpan) -> MeasuredSpan:
    """Join two measurements; on each of its channels `more` starts where `before` was exact."""
    channels = dict(before.channels)
    for name, further in more.channels.items():
        known = channels[name]
        last = known.steps[-1] if known.steps else SpanStep(before.after, before.after, 0, 0)
        steps = [
            SpanStep(it.first_tick, it.tick, last.rows + it.rows, last.bytes + it.bytes)
            for it in further.steps
        ]
        channels[name] = MeasuredChannel((*known.steps, *steps), further.exact)
    return MeasuredSpan(before.after, before.until, channels, (*before.copies, *more.copies))


def _is_over(
    tick: TimeTick, steps: Sequence[Sequence[SpanStep]], rows_max: int, bytes_max: int
) -> bool:
    found = _choice(tick, steps)
    return 0 < rows_max < found.rows or 0 < bytes_max < found.bytes


def _choice(tick: TimeTick, steps: Sequence[Sequence[SpanStep]]) -> TickChoice:
    reached = [it for it in (_reached(each, tick) for each in steps) if it is not None]
    return TickChoice(tick, sum(it.rows for it in reached), sum(it.bytes for it in reached))


def _reached(steps: Sequence[SpanStep], tick: TimeTick) -> SpanStep | None:
    """The last step that begins at or before the tick."""
    at = bisect_right(steps, tick, key=lambda it: it.first_tick)
    return steps[at - 1] if at else None


def _joined(intervals: Iterable[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    for first, last in sorted(it for it in intervals if it[0] < it[1]):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def _in(tick: TimeTick, intervals: Sequence[Interval]) -> bool:
    at = bisect_right(intervals, tick, key=lambda it: it[0]) - 1
    return at >= 0 and tick < intervals[at][1]


def _rows_to(steps: Sequence[SpanStep], tick: TimeTick) -> int:
    reached = _reached(steps, tick)
    return reached.rows if reached else 0
