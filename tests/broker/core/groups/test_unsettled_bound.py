"""A group at the bound of what may be unsettled: it waits, says so, loses nothing, and goes on."""

import pytest

from broker.core.groups.group_rules import SPANS_MAX
from broker.core.groups.leases import Portion
from broker.core.groups.ordered_book import KEYED_UNITS_MAX, OrderedBook
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick
from tests.broker.core.groups.ordered_parts import KEY, ordered_table, span

MESSAGES = 3 * SPANS_MAX
PORTION = 500


class Log:
    """Messages at ticks 1 to MESSAGES, each of a key of its own, and what became of them."""

    def __init__(self, book: OrderedBook) -> None:
        self.book, self.acknowledged = book, list[int]()
        member = book.join("ann", "ann")
        assert isinstance(member, int)
        self.ann = member
        book.owners.give(member, "ann")

    def read_on(self) -> Portion | None:
        """As the Group does; None: it waits."""
        portion = self.book.portion_for([self.ann], 0.0)
        if portion is not None and portion.returned is None:
            ticks = range(portion.after + 1, min(portion.after + PORTION, MESSAGES) + 1)
            if not ticks:
                return None
            positions = [(TimeTick(it), (it,)) for it in ticks]
            self.book.learn(positions, portion, TimeTick(ticks[-1]))
        return portion

    def lease(self) -> tuple[int, list[int]]:
        units = self.book.ready([self.ann], 0.0)[self.ann]
        return self.book.lease_units(self.ann, units, 0.0).number, [it.tick for it in units]

    def acknowledge(self, number: int, ticks: list[int]) -> None:
        taken = self.book.take_acked(self.ann, number, [span(it - 1, it) for it in ticks])
        assert isinstance(taken, tuple), taken
        self.book.state.acknowledge(taken)
        self.acknowledged += ticks


@pytest.mark.parametrize("every", [1, 2, 5])
def test_a_member_that_leaves_messages_unsettled_stops_the_group_at_its_bound(every: int) -> None:
    """Of the messages it leaves each `every`-th; the others it acknowledges, one by one."""
    log = Log(OrderedBook(ordered_table(GroupMode.BY_KEY).groups[KEY]))
    held: list[tuple[int, list[int]]] = []
    while log.read_on() is not None:
        number, ticks = log.lease()
        left = [it for it in ticks if it % every == 0]
        held.append((number, left))
        if len(left) < len(ticks):
            log.acknowledge(number, [it for it in ticks if it % every])
    unsettled = sum(len(left) for _, left in held)
    assert unsettled <= KEYED_UNITS_MAX
    assert unsettled + len(log.acknowledged) < MESSAGES, "it has stopped, with more to read"
    first = log.book.first_left(0.0)
    assert first is not None
    assert first.tick == every
    # It goes on once the oldest ones are settled, and then everything comes, each once.
    for number, left in held:
        assert not left or log.book.give_back(log.ann, number, (), 0.0) is None
    while log.read_on() is not None:
        number, ticks = log.lease()
        assert ticks
        log.acknowledge(number, ticks)
    assert sorted(log.acknowledged) == list(range(1, MESSAGES + 1))
    assert log.book.state.floor == MESSAGES
