"""Which of the messages that were read are to be delivered to a member."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from broker.core.groups.tick_spans import TickSpans
from broker.core.log.delivery import DeliveredItem
from broker.core.naming import is_control_channel
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick
from broker.model.message import (
    EXCLUSIVE_TYPES,
    SELF_CONTROLLED_TYPES,
    ClosedTick,
    DeliveredInTxn,
)
from broker.model.record import Record, RecordSlice, RecordSliceInTxn
from broker.node.groups.timely_items import TimelyItems

Announced = Callable[[bytes], bool]
"""Whether a stored message announces a change of definitions: see `Headers.announced`."""


def wanted_items(
    items: Iterable[DeliveredItem], wanted: TickSpans, timely: TimelyItems
) -> tuple[DeliveredItem, ...]:
    """The items at these ticks, cut where a tick is not wanted; empty without any message.

    Without those that no program wrote, as other readers get them.
    """
    found: list[DeliveredItem] = []
    messages = False
    for item in items:
        if isinstance(item, RecordSlice) and not isinstance(item, RecordSliceInTxn):
            ours = _is_of_the_log(item.record, timely.headers.announced)
            for piece in [] if ours else _cut(item, wanted):
                parts = timely.parts(piece)
                found += parts
                messages = messages or bool(parts)
        # The messages of a transaction have one tick, and are wanted together or not at all.
        elif not isinstance(item, ClosedTick) and wanted.has(item.tick):
            if isinstance(item, RecordSlice) and not timely.parts(item):
                continue
            found.append(item)
            messages = messages or _is_body(item)
    return tuple(found) if messages else ()


def first_tick(items: Iterable[DeliveredItem]) -> TimeTick:
    """The tick of the first message among items that have one."""
    for item in items:
        if isinstance(item, RecordSlice):
            return item.first_tick
        if not isinstance(item, ClosedTick) and _is_body(item):
            return item.tick
    raise AssertionError("items without a message")


def _cut(item: RecordSlice, wanted: TickSpans) -> list[RecordSlice]:
    span = TickSpan(TimeTick(item.first_tick - 1), item.last_tick)
    base = item.record.base_tick
    return [
        replace(item, first=each.after + 1 - base, end=each.upto + 1 - base)
        for each in wanted.within(span)
    ]


def _is_of_the_log(record: Record, announced: Announced) -> bool:
    """Whether the log wrote it, or reads it to know its collections."""
    if record.kind in SELF_CONTROLLED_TYPES:
        return True
    # Of few types, so that the bodies of rows are not searched.
    if record.kind not in EXCLUSIVE_TYPES or is_control_channel(record.vchannel):
        return False
    return announced(record.body)


def _is_body(item: DeliveredItem) -> bool:
    """Whether it is a message of a transaction, and not its begin or its commit."""
    if isinstance(item, RecordSliceInTxn):
        return True
    return isinstance(item, DeliveredInTxn) and item.begins is None
