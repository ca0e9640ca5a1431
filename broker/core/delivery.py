"""From stored records to what one consumer sees: in tick order, each message exactly once.

It mirrors the sequencer: because ids and ticks were given in one order, reading by id is reading
by tick, and nothing has to be reordered. It never reads a log and keeps no position: a cursor
comes in and the next one goes out.
Next: broker/core/tail_window.py
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import assert_never

from broker.model.ids import MessageId, TimeTick
from broker.model.message import SYSTEM_TYPES, ClosedTick, Delivered, MessageType
from broker.model.position import Cursor, DeliverFilter, MessageTypes, TimeTickGt, TimeTickGte
from broker.model.record import Record

MESSAGE_OVERHEAD_BYTES = 64
"""Counted for every message beside its body, so that a credit also bounds tiny messages."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a consumer wants: one vchannel ("": all), ticks above `floor`, kinds (None: all)."""

    vchannel: str
    floor: TimeTick
    kinds: frozenset[int] | None


@dataclass(frozen=True, slots=True)
class Picked:
    """`items` in tick order; `cursor` is where to go on."""

    items: tuple[Delivered | ClosedTick, ...]
    cursor: Cursor


def select(vchannel: str, filters: Sequence[DeliverFilter]) -> Selection:
    """All filters hold at once. System types pass every type filter."""
    floor, kinds = TimeTick(0), None
    for each in filters:
        match each:
            case TimeTickGt(tick):
                floor = max(floor, tick)
            case TimeTickGte(tick):
                floor = max(floor, TimeTick(tick - 1))
            case MessageTypes(types):
                wanted = types | SYSTEM_TYPES
                kinds = wanted if kinds is None else kinds & wanted
            case _:
                assert_never(each)
    return Selection(vchannel, floor, kinds)


def deliver(
    records: Sequence[Record], cursor: Cursor, selection: Selection, bytes_max: int
) -> Picked:
    """What the consumer sees of consecutive records, the first of which holds `cursor.next_id`.

    Stops at about `bytes_max`, inside a record too, but gives one message at least if there is one.
    Records of other vchannels cost one comparison each; those with vchannel "" go to everybody.
    """
    items: list[Delivered | ClosedTick] = []
    vchannel, kinds = selection.vchannel, selection.kinds
    floor = max(selection.floor, cursor.tick)
    next_id, room = cursor.next_id, bytes_max
    for record in records:
        if vchannel and record.vchannel and record.vchannel != vchannel:
            next_id = record.next_id
            continue
        if kinds is not None and record.kind not in kinds:
            next_id = record.next_id
            continue
        first = max(0, next_id - record.base_id, floor - record.base_tick + 1)
        count, used = _fitting(record.sizes, first, room, one_at_least=not items)
        items.extend(_items(record, first, count))
        room -= used
        if first + count < len(record.sizes):
            next_id = MessageId(record.base_id + first + count)
            break
        next_id = record.next_id
    tick = max(cursor.tick, items[-1].tick) if items else cursor.tick
    return Picked(tuple(items), Cursor(next_id, tick))


def announce(closed: ClosedTick, cursor: Cursor, selection: Selection) -> ClosedTick | None:
    """The closed tick, for a consumer who has everything before it and does not know it yet."""
    if closed.tick <= cursor.tick or closed.tick <= selection.floor:
        return None
    return closed


def _fitting(
    sizes: tuple[int, ...], first: int, room: int, *, one_at_least: bool
) -> tuple[int, int]:
    """How many messages from `first` on fit into `room` bytes, and what they take."""
    count = used = 0
    for index in range(first, len(sizes)):
        size = sizes[index] + MESSAGE_OVERHEAD_BYTES
        if used + size > room and not (one_at_least and count == 0):
            break
        count += 1
        used += size
    return count, used


def _items(record: Record, first: int, count: int) -> Sequence[Delivered | ClosedTick]:
    if record.kind != MessageType.TIME_TICK:
        return list(islice(record.messages(first), count))
    return [
        ClosedTick(
            tick=message.tick,
            id=message.id,
            last_confirmed_id=message.last_confirmed_id,
            term=message.term,
            persisted=True,
        )
        for message in islice(record.messages(first), count)
    ]
