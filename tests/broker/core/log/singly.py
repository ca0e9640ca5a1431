"""What is delivered, message by message: for models and checks that know no slices."""

from collections.abc import Iterable
from itertools import islice

from broker.core.log.delivery import DeliveredItem
from broker.model.message import ClosedTick, Delivered
from broker.model.record import RecordSlice


def each_of(items: Iterable[DeliveredItem]) -> list[Delivered | ClosedTick]:
    """Slices taken apart, outside of transactions; all else as it is."""
    found: list[Delivered | ClosedTick] = []
    for item in items:
        if isinstance(item, RecordSlice):
            found += islice(item.record.messages(item.first), item.end - item.first)
        else:
            found.append(item)
    return found


def messages_of(items: Iterable[DeliveredItem]) -> list[Delivered]:
    """The same without ticks."""
    return [item for item in each_of(items) if isinstance(item, Delivered)]
