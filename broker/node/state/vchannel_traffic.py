"""Counts appended and delivered messages of each vchannel, for `tidemark top`.

Ids are counted per pchannel, and many collections share one, so ids cannot tell them apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from broker.core.log.delivery import DeliveredItem
from broker.model.message import (
    LOG_STEPS,
    SELF_CONTROLLED_TYPES,
    TXN_TYPES,
    ClosedTick,
    Delivered,
    DeliveredInTxn,
)
from broker.model.record import Record, RecordSlice, RecordSliceInTxn
from broker.model.traffic import VChannelTraffic

VCHANNELS_MAX = 16_384
"""About 4 MB; beyond it the vchannel that was used least recently is forgotten."""

NOT_COUNTED = SELF_CONTROLLED_TYPES | TXN_TYPES | LOG_STEPS
"""Records that the log or a transaction needs, and no user appended."""


@dataclass(slots=True)
class GroupCount:
    """What one group holds for one vchannel."""

    messages: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Counter:
    serial: int
    messages: int = 0
    bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0


def count_group(records: Iterable[Record]) -> dict[str, GroupCount]:
    """What a group of records holds for each vchannel, without `NOT_COUNTED` records."""
    counts: dict[str, GroupCount] = {}
    for record in records:
        if record.kind in NOT_COUNTED or not record.vchannel:
            continue
        count = counts.get(record.vchannel)
        if count is None:
            count = counts[record.vchannel] = GroupCount()
        count.messages += len(record.sizes)
        count.bytes += len(record.body)
    return counts


class TrafficCounts:
    """The counts of a node. They outlive its actors, and are forgotten when the process ends."""

    def __init__(self, vchannels_max: int = VCHANNELS_MAX) -> None:
        # Ordered by use, the least recently used first.
        self._counters: dict[str, _Counter] = {}
        self._vchannels_max = vchannels_max
        self._serials = 0

    def appended(self, counts: dict[str, GroupCount]) -> None:
        """Add a durable group."""
        for vchannel, count in counts.items():
            counter = self._used(vchannel)
            counter.messages += count.messages
            counter.bytes += count.bytes

    def delivered(self, vchannel: str, items: Sequence[DeliveredItem]) -> int:
        """Add what a consumer of `vchannel` ("": of all) was given; returns the number of items.

        Messages that come one by one do not name their vchannel: they count for that of the
        consumer only.
        """
        total = in_txn = 0
        counts: dict[str, GroupCount] = {}
        for item in items:
            name, count, size = _delivery_of(vchannel, item)
            total += count
            # The commit of a transaction comes after its messages, with the same tick.
            is_commit = type(item) is Delivered and item.tick == in_txn
            in_txn = item.tick if isinstance(item, DeliveredInTxn | RecordSliceInTxn) else 0
            if name and not is_commit:
                known = counts.setdefault(name, GroupCount())
                known.messages += count
                known.bytes += size
        for name, known in counts.items():
            counter = self._used(name)
            counter.delivered += known.messages
            counter.delivered_bytes += known.bytes
        return total

    def all(self) -> list[VChannelTraffic]:
        """The counts of every vchannel that is remembered."""
        return [
            VChannelTraffic(
                vchannel=name,
                serial=it.serial,
                messages=it.messages,
                bytes=it.bytes,
                delivered=it.delivered,
                delivered_bytes=it.delivered_bytes,
            )
            for name, it in self._counters.items()
        ]

    def _used(self, vchannel: str) -> _Counter:
        counter = self._counters.pop(vchannel, None)
        if counter is None:
            if len(self._counters) >= self._vchannels_max:
                del self._counters[next(iter(self._counters))]
            # A vchannel that was forgotten counts from 0 again, so it gets another serial.
            self._serials += 1
            counter = _Counter(self._serials)
        self._counters[vchannel] = counter
        return counter


def _delivery_of(vchannel: str, item: DeliveredItem) -> tuple[str, int, int]:
    """The vchannel, messages and bytes of one item; no vchannel for what is not counted."""
    if isinstance(item, RecordSlice):
        record, count = item.record, item.end - item.first
        # Of a part of a record its share: sizes of compressed batches do not add up to the body.
        size = len(record.body) * count // len(record.sizes)
        return ("" if record.kind in NOT_COUNTED else record.vchannel), count, size
    if isinstance(item, ClosedTick) or (isinstance(item, DeliveredInTxn) and item.begins):
        return "", 1, 0
    return vchannel, 1, len(item.body)
