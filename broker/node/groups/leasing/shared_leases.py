"""Leases what was read to the member that waits longest: a group whose members share messages."""

from typing import Any

from actors import Envelope
from broker.core.groups.lease_book import LeaseBook
from broker.core.groups.leases import Portion
from broker.model.failure import Refusal, StreamingCode
from broker.node.group_messages import GiveVChannel, LeasedMessages, WatchOwnership
from broker.node.groups.leasing.portion_reading import LeaseParts, PortionReading
from broker.node.groups.wanted_items import first_tick, wanted_items


class SharedLeases:
    """For one Group."""

    takes_turns = True
    """What comes again, and what is new."""

    def __init__(self, book: LeaseBook, parts: LeaseParts) -> None:
        self._book = book
        self._parts = parts

    def portion(self, now_s: float, *, new_first: bool) -> Portion | None:
        """What to read next."""
        return self._book.portion(now_s, new_first=new_first)

    def lease(self, reading: PortionReading, now_s: float) -> bool:
        """Lease what was read to who waits longest; False if there is nothing to lease."""
        portion, reached, book = reading.portion, reading.cursor.tick, self._book
        timely = self._parts.timely
        if portion.returned is not None:
            reached = min(reached, portion.returned.spans.end)
        items = wanted_items(reading.items, book.wanted(portion, reached), timely)
        if not items:
            return False
        if book.is_last(portion):
            reached = first_tick(items)
            items = wanted_items(items, book.wanted(portion, reached), timely)
        taker = self._parts.takers.pop()
        if taker is None:
            book.put_back(portion)
            return True
        lease = book.lease(taker.take.member, portion, reached, now_s)
        if portion.returned is None:
            self._parts.unread.reached(reading.cursor, found=True)
        leased = LeasedMessages(lease.number, lease.span, lease.times, items, lease.alone)
        self._parts.counted.give(taker.envelope, lease, leased)
        return True

    def watch(self, envelope: Envelope[Any], watch: WatchOwnership, now_s: float) -> None:
        """Nobody owns anything here."""
        cause = "members of this group share its messages; none owns a vchannel"
        envelope.reply(Refusal(StreamingCode.INVALID_ARGUMENT, cause))

    def give(self, give: GiveVChannel) -> None:
        """Nobody owns anything here."""

    def tell(self, now_s: float) -> float | None:
        """Nobody watches."""
        return None
