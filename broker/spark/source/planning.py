"""Partitions of the range between two cuts, checked to be still in the log.

Each vchannel with rows gets a partition; a large one gets several of about equal size. Many small
vchannels of one pchannel share partitions, because they lie in one log, which is then read once.
The streaming and the batch reader use the same plan.

Next: broker/spark/source/reading.py
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql.datasource import InputPartition

from broker.client import Cut
from broker.core.naming import pchannel_of
from broker.model.ids import PChannelName
from broker.spark.refusals import DataLoss
from broker.spark.source.cut_offsets import losses
from broker.spark.source.reading import Span, SpanPartition
from broker.spark.source.subscribed import Subscribed

BYTES_MAX: Final = 64 * 1024 * 1024
"""Approximate size of a partition. A task reads this much in less than a second."""
ALONE_MAX: Final = 64
"""With more vchannels than this, those of one pchannel share partitions."""
log = logging.getLogger("tidemark.spark")


def plan(subscribed: Subscribed, start: Cut, end: Cut) -> list[InputPartition]:
    """Return the partitions between two cuts. Raises DataLoss when retention removed some of it."""
    if end.tick <= start.tick:
        return []
    options = subscribed.options
    _check(subscribed, start, end)
    return [
        SpanPartition(
            span, options.server, options.cluster, subscribed.shape, options.fail_on_data_loss
        )
        for span in _spans(subscribed, start, end)
    ]


def shares(sizes: Mapping[str, int], size_max: int, parts_min: int) -> dict[str, int]:
    """Return the number of parts of each: none above `size_max`, and `parts_min` in all."""
    parts = {name: max(1, -(-size // size_max)) for name, size in sizes.items()}
    while sizes and sum(parts.values()) < parts_min:
        largest = max(parts, key=lambda name: sizes[name] / parts[name])
        parts[largest] += 1
    return parts


def _check(subscribed: Subscribed, start: Cut, end: Cut) -> None:
    # A cheap check, before any task starts. Retention may remove more while the tasks read; they
    # notice it themselves.
    lost = losses(start, end, subscribed.gateway.held(list(start.ends)))
    if lost and subscribed.options.fail_on_data_loss:
        raise DataLoss(lost)
    for sentence in lost:
        log.warning("tidemark: data loss accepted: %s", sentence)


def _spans(subscribed: Subscribed, start: Cut, end: Cut) -> Iterator[Span]:
    gateway, found = subscribed.gateway, subscribed.between(start, end)
    sizes = {
        # Steps are cumulative: the largest counts everything up to it.
        name: max(step.bytes for step in steps if step.first_tick <= end.tick)
        for name, steps in found.steps.items()
        if steps and steps[0].first_tick <= end.tick
    }
    parts = shares(sizes, BYTES_MAX, subscribed.options.partitions_min)
    for group in groups({name: sizes[name] for name in parts if parts[name] == 1}):
        yield Span(group, _of(start, group), end.tick, _beginning(start, group))
    for name in [name for name in parts if parts[name] > 1]:
        for after, until in found.ranges(name, parts[name]):
            begin = start if after == start.tick else gateway.cut([name], after)
            yield Span((name,), _of(begin, (name,)), until, _beginning(start, (name,)))


def groups(sizes: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Return which vchannels are read together: each alone, or many of one pchannel."""
    if len(sizes) <= ALONE_MAX:
        return [(name,) for name in sizes]
    found: list[tuple[str, ...]] = []
    room: dict[PChannelName, int] = {}
    at: dict[PChannelName, int] = {}
    for name, size in sizes.items():
        pchannel = pchannel_of(name)
        if size > room.get(pchannel, 0):
            at[pchannel], room[pchannel] = len(found), BYTES_MAX
            found.append(())
        found[at[pchannel]] += (name,)
        room[pchannel] -= size
    return found


def _of(cut: Cut, names: tuple[str, ...]) -> Cut:
    """Return the part of a cut that a task needs."""
    return Cut(cut.tick, {name: cut.ends[name] for name in names})


def _beginning(start: Cut, names: tuple[str, ...]) -> int:
    """Return where their log began when the query starts there, else 0. All are on one pchannel."""
    return int(start.ends[names[0]]) if start.tick == 0 else 0
