"""Partitions of the range between two cuts, checked to be still in the log.

Each vchannel with rows gets a partition; a large one gets several of about equal size. Many small
vchannels of one pchannel share partitions, because they lie in one log, which is then read once.
The streaming and the batch reader use the same plan.

Next: broker/spark/source/reading.py
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from broker.client import Cut
from broker.core.naming import pchannel_of
from broker.model.channel import ChannelOffsets
from broker.model.ids import PChannelName, TimeTick
from broker.spark.source.cut_offsets import Position, losses
from broker.spark.source.reading import Span, SpanPartition
from broker.spark.source.subscribed import Subscribed

if TYPE_CHECKING:
    from broker.client import Measurement

Level = tuple[TimeTick, TimeTick]
"""The ticks between which vchannels are read."""
BYTES_MAX: Final = 64 * 1024 * 1024
"""Approximate size of a partition. A task reads this much in less than a second."""
ALONE_MAX: Final = 64
"""With more vchannels than this, those of one pchannel share partitions."""


def plan(subscribed: Subscribed, start: Position, end: Position) -> list[InputPartition]:
    """Return the partitions between two positions.

    Raises DataLoss when retention removed some of it.
    """
    start = subscribed.beginning_with(start, end)
    names = subscribed.remaining(start, end)
    if not names:
        return []
    end = end.of_some(names)
    levels = _levels(start, end)
    if not levels:
        return []
    options = subscribed.options
    # Before the check: what is removed in between has partitions, and the tasks notice it.
    measured = {level: subscribed.measured(names, *level) for level, names in levels.items()}
    held = _check(subscribed, start, end)
    purged = {name for name, it in held.items() if start.of(name) < it.purged_tick}
    return [
        SpanPartition(
            span,
            options.server,
            subscribed.shape_of(span.vchannels),
            options.fail_on_data_loss,
            subscribed.proven,
        )
        for span in _spans(subscribed, start, levels, measured, purged)
    ]


def shares(sizes: Mapping[str, int], size_max: int, parts_min: int) -> dict[str, int]:
    """Return the number of parts of each: none above `size_max`, and `parts_min` in all."""
    parts = {name: max(1, -(-size // size_max)) for name, size in sizes.items()}
    while sizes and sum(parts.values()) < parts_min:
        largest = max(parts, key=lambda name: sizes[name] / parts[name])
        parts[largest] += 1
    return parts


def _check(subscribed: Subscribed, start: Position, end: Position) -> Mapping[str, ChannelOffsets]:
    # A cheap check, before any task starts. Retention may remove more while the tasks read; they
    # notice it themselves.
    held = subscribed.gateway.held(list(end.ends))
    kept = Position(start.tick, {name: start.ends[name] for name in end.ends}, start.ahead)
    lost = losses(kept, end, held)
    subscribed.tell(lost)
    return held


def _levels(start: Position, end: Position) -> dict[Level, list[str]]:
    """Return the vchannels by the ticks between which they are read; mostly there is one span."""
    levels: dict[Level, list[str]] = {}
    for name in end.ends:
        after, until = start.of(name), end.of(name)
        if after < until:
            levels.setdefault((after, until), []).append(name)
    return levels


def _spans(
    subscribed: Subscribed,
    start: Position,
    levels: Mapping[Level, Sequence[str]],
    measured: Mapping[Level, "Measurement"],
    purged: Collection[str],
) -> Iterator[Span]:
    """Yield the spans; also those without rows of vchannels that were `purged` behind the start.

    Only the broker can tell whether these had rows that are missing now: by refusing to read them.
    """
    level_of = {name: level for level, names in levels.items() for name in names}
    sizes = {
        # Steps are cumulative: the largest counts everything up to it.
        name: max(step.bytes for step in steps if step.first_tick <= until)
        for (_, until), found in measured.items()
        for name, steps in found.steps.items()
        if steps and steps[0].first_tick <= until
    }
    parts = shares(sizes, BYTES_MAX, subscribed.options.partitions_min)
    whole = {name: sizes[name] for name in parts if parts[name] == 1}
    whole |= {name: 0 for name in level_of if name in purged and name not in parts}
    for group in groups(whole, lambda name: (level_of[name], subscribed.with_columns(name))):
        after, until = level_of[group[0]]
        begin = Cut(after, {name: start.ends[name] for name in group})
        yield Span(group, begin, until, _beginning(begin, group[0]))
    for name in [name for name in parts if parts[name] > 1]:
        first, _ = level = level_of[name]
        for after, until in measured[level].ranges(name, parts[name]):
            begin = Cut(first, {name: start.ends[name]})
            if after != first:
                begin = subscribed.gateway.cut([name], after)
            yield Span((name,), begin, until, _beginning(Cut(first, start.ends), name))


def groups(
    sizes: Mapping[str, int], apart: Callable[[str], object] = lambda _: None
) -> list[tuple[str, ...]]:
    """Return which vchannels are read together: each alone, or many of one pchannel.

    Those that differ in `apart` are not read together.
    """
    if len(sizes) <= ALONE_MAX:
        return [(name,) for name in sizes]
    found: list[tuple[str, ...]] = []
    room: dict[tuple[PChannelName, object], int] = {}
    at: dict[tuple[PChannelName, object], int] = {}
    for name, size in sizes.items():
        log_of = (pchannel_of(name), apart(name))
        if size > room.get(log_of, 0):
            at[log_of], room[log_of] = len(found), BYTES_MAX
            found.append(())
        found[at[log_of]] += (name,)
        room[log_of] -= size
    return found


def _beginning(start: Cut, name: str) -> int:
    """Return where the log began when the query starts there, else 0. All are on one pchannel."""
    return int(start.ends[name]) if start.tick == 0 else 0
