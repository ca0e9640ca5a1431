"""Bugs of groups, for `tests.chaos.storm.sabotages`."""

from collections.abc import Sequence
from typing import Any

from broker.core.groups.ordered_book import EVERYTHING, OrderedBook
from broker.core.groups.ordered_units import WAITING, Unit
from broker.core.groups.slot_owners import SlotOwners
from broker.model.groups.consumer_group import TickSpan


def two_owners_of_a_key() -> Sequence[tuple[Any, str, Any]]:
    """A slot moves at once, and its new owner gets what is behind messages that the old one has."""

    def moved(owners: SlotOwners, slot: int) -> bool:
        owners._owners[slot] = owners._planned[slot]
        return True

    def ready(
        book: OrderedBook, members: Sequence[int], now_s: float, span: TickSpan = EVERYTHING
    ) -> dict[int, list[Unit]]:
        book._catch_up()
        found: dict[int, list[Unit]] = {member: [] for member in members}
        for unit in list(book._units) if members else ():
            free = unit.lease == WAITING and unit.due_s <= now_s
            member = book.owners.owner(unit.lanes[0]) if unit.lanes else members[0]
            taken = found.get(member, [])
            if free and span.after < unit.tick <= span.upto and book._goes_with(taken, unit):
                taken.append(unit)
        return found

    return [(SlotOwners, "_is_settled", moved), (OrderedBook, "ready", ready)]
