"""Leases what was read to the members that own it: an ordered group."""

from collections.abc import Iterable, Sequence
from typing import Any

from actors import Envelope
from broker.core.groups.key_lanes import WHOLE, lanes_of
from broker.core.groups.leases import Portion
from broker.core.groups.ordered_book import OrderedBook, Position
from broker.core.groups.ordered_units import Unit
from broker.core.groups.tick_spans import TickSpans
from broker.core.log.delivery import DeliveredItem
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick
from broker.model.message import ClosedTick, DeliveredInTxn
from broker.model.record import RecordSlice, RecordSliceInTxn
from broker.node.group_messages import GiveVChannel, LeasedMessages, WatchOwnership
from broker.node.groups.leasing.picked_items import picked_items
from broker.node.groups.leasing.portion_reading import LeaseParts, PortionReading
from broker.node.groups.waiting_members import TAKE_S
from broker.node.groups.wanted_items import wanted_items


class OrderedLeases:
    """For one Group. What was read serves every member that waits and owns some of it."""

    takes_turns = False
    """What comes again goes first, as it is before the others."""

    def __init__(self, book: OrderedBook, parts: LeaseParts) -> None:
        self._book = book
        self._parts = parts
        self._headers = parts.timely.headers
        self._watching: dict[int, tuple[Envelope[Any], int, float]] = {}
        """By member: what it has seen, and until when it waits."""

    def portion(self, now_s: float, *, new_first: bool) -> Portion | None:
        """What to read next."""
        return self._book.portion_for(self._parts.takers.numbers, now_s)

    def lease(self, reading: PortionReading, now_s: float) -> bool:
        """Lease what was read; False to read on."""
        portion, reached = reading.portion, reading.cursor.tick
        if portion.returned is None:
            if not self._learn(reading):
                return False
            reached = self._book.edge
        else:
            reached = min(reached, portion.returned.spans.end)
        # What was passed over may be ready by now, and is not among the items: not of this portion.
        span = TickSpan(reading.after, max(reading.after, reached))
        members = self._parts.takers.numbers
        ready = self._book.ready(members, now_s, span)
        done = [self._give(it, units, reading, now_s) for it, units in ready.items() if units]
        if any(done) or portion.returned is None or reached >= portion.returned.spans.end:
            return True
        # What is wanted lies further on; what was read so far is not needed for it.
        reading.pass_over(span.upto)
        return False

    def watch(self, envelope: Envelope[Any], watch: WatchOwnership, now_s: float) -> None:
        """Answer when members or the plan have changed."""
        earlier = self._watching.pop(watch.member, None)
        if earlier is not None:
            earlier[0].reply(self._book.owners.ownership())
        self._watching[watch.member] = (envelope, watch.changes, now_s + TAKE_S)

    def give(self, give: GiveVChannel) -> None:
        """Have the vchannel go to another member, or to the one that asks."""
        self._book.owners.give(give.member, give.identity)

    def tell(self, now_s: float) -> float | None:
        """Tell who watches what has changed, and settle what nobody has; when to look again."""
        self._parts.settle(self._book.take_unowned())
        owners = self._book.owners
        before = owners.changes
        owners.look(now_s)
        # Who was chosen just now may wait for messages.
        looks_s = [now_s] if owners.changes != before else []
        for member, (envelope, seen, until_s) in list(self._watching.items()):
            if owners.changes != seen or until_s <= now_s or not self._book.is_member(member):
                del self._watching[member]
                envelope.reply(owners.ownership())
        return min([it[2] for it in self._watching.values()] + looks_s, default=None)

    def _learn(self, reading: PortionReading) -> bool:
        """Take up new messages; False when there are none."""
        portion, reached = reading.portion, reading.cursor.tick
        unread = self._book.unread(portion, reached)
        items = wanted_items(reading.items, unread, self._parts.timely)
        if not items:
            return False
        if self._book.learn(self._positions(items), portion, reached):
            self._parts.unread.reached(reading.cursor, found=True)
        else:
            self._parts.unread.at = None
        return True

    def _give(
        self, member: int, units: Sequence[Unit], reading: PortionReading, now_s: float
    ) -> bool:
        """Whether anything has changed."""
        # Exactly their ticks: what lies before them was passed over, and is not looked at again.
        ticks = TickSpans([TickSpan(TimeTick(it.tick - 1), it.tick) for it in units])
        items = wanted_items(reading.items, ticks, self._parts.timely)
        if not items:
            self._parts.settle(self._book.gone(units))
            return True
        taker = self._parts.takers.pop_member(member)
        if taker is None:
            return False
        lease = self._book.lease_units(member, units, now_s)
        items = picked_items(items, self._headers)
        leased = LeasedMessages(lease.number, lease.span, lease.times, items, lease.alone)
        self._parts.counted.give(taker.envelope, lease, leased)
        return True

    def _positions(self, items: Iterable[DeliveredItem]) -> list[Position]:
        """Ticks with messages, in order, and the lanes of each."""
        found: dict[TimeTick, list[bytes | None]] = {}
        for item in items:
            if isinstance(item, RecordSliceInTxn):
                found.setdefault(item.tick, []).extend(self._keys(item))
            elif isinstance(item, RecordSlice):
                for tick, key in enumerate(self._keys(item), item.first_tick):
                    found[TimeTick(tick)] = [key]
            elif isinstance(item, DeliveredInTxn) and item.begins is None:
                found.setdefault(item.tick, []).extend(self._keys(item))
            else:
                assert not isinstance(item, ClosedTick)
        if not self._book.by_key:
            return [(tick, (WHOLE,)) for tick in found]
        return [(tick, lanes_of(keys)) for tick, keys in found.items()]

    def _keys(self, item: RecordSlice | DeliveredInTxn) -> Sequence[bytes | None]:
        if self._book.by_key:
            return self._headers.keys(item)
        return [None] * (item.end - item.first if isinstance(item, RecordSlice) else 1)
