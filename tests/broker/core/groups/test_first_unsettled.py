"""What an ordered group has to settle first: which key, what became of it, and what waits."""

from zlib import crc32

from broker.core.groups.group_changes import AckedInTxn
from broker.core.groups.group_table import GroupTable
from broker.core.groups.ordered_book import KEYED_UNITS_MAX, UNITS_MAX, OrderedBook, Position
from broker.model.groups.group_mode import GroupMode
from broker.model.groups.unsettled import FirstUnsettled, Unsettled
from broker.model.ids import TimeTick, TxnId
from tests.broker.core.groups.ordered_parts import KEY, ordered_table, span

A, B = crc32(b"a"), crc32(b"b")


def learned(
    *lanes: int | None, mode: GroupMode = GroupMode.BY_KEY
) -> tuple[GroupTable, OrderedBook]:
    """A book with one message for each lane, at ticks 10, 20 and so on."""
    table = ordered_table(mode)
    book = OrderedBook(table.groups[KEY])
    member = book.join("ann", "ann")
    assert isinstance(member, int)
    book.owners.give(member, "ann")
    portion = book.portion_for([member], 0.0)
    assert portion is not None
    ticks = [TimeTick(10 * (at + 1)) for at in range(len(lanes))]
    positions: list[Position] = [
        (tick, () if lane is None else (lane,)) for tick, lane in zip(ticks, lanes, strict=True)
    ]
    assert book.learn(positions, portion, ticks[-1])
    return table, book


def first(book: OrderedBook, now_s: float = 0.0) -> FirstUnsettled:
    found = book.first_left(now_s)
    assert found is not None
    return found


def lease_all(book: OrderedBook, now_s: float) -> int:
    (units,) = book.ready([1], now_s).values()
    return book.lease_units(1, units, now_s).number


def test_a_group_that_has_read_nothing_has_nothing_to_settle() -> None:
    assert OrderedBook(ordered_table(GroupMode.BY_KEY).groups[KEY]).first_left(0.0) is None


def test_the_oldest_message_is_told_with_its_key_and_what_waits_behind_it() -> None:
    _, book = learned(A, B, A, A)
    found = first(book)
    assert (found.tick, found.key_hash, found.state) == (10, A, Unsettled.WAITING)
    assert (found.deliveries, found.first_s, found.behind) == (0, None, 2)
    assert (found.unsettled, found.unsettled_max, found.full) == (4, KEYED_UNITS_MAX, False)


def test_it_is_told_what_becomes_of_it_and_since_when() -> None:
    _, book = learned(A, B)
    lease = lease_all(book, 5.0)
    found = first(book, 8.0)
    assert (found.state, found.first_s, found.deliveries) == (Unsettled.LEASED, 3.0, 1)
    assert book.give_back(1, lease, [span(0, 10)], 20.0) is None
    found = first(book, 15.0)
    assert (found.state, found.first_s, found.deliveries) == (Unsettled.DELAYED, 10.0, 1)
    again = lease_all(book, 25.0)
    # Since its first delivery, not since this one.
    assert (first(book, 30.0).first_s, first(book, 30.0).deliveries) == (25.0, 2)
    assert book.take_acked(1, again, []) == (span(0, 10),)
    assert first(book, 30.0).state is Unsettled.SETTLING


def test_what_a_transaction_holds_is_told_apart() -> None:
    table, book = learned(A)
    lease = lease_all(book, 0.0)
    taken = book.take_acked(1, lease, [], TxnId(3))
    assert taken == (span(0, 10),)
    table.hold(KEY.vchannel, AckedInTxn("g", TxnId(3), taken, 1), TimeTick(30))
    assert first(book).state is Unsettled.HELD


def test_a_message_without_a_key_has_none_behind_it_and_a_vchannel_all() -> None:
    _, book = learned(None, None, A)
    assert (first(book).key_hash, first(book).behind) == (None, 0)
    _, book = learned(0, 0, 0, mode=GroupMode.BY_VCHANNEL)
    found = first(book)
    assert (found.key_hash, found.behind, found.unsettled_max) == (None, 2, UNITS_MAX)


def test_a_group_that_has_as_many_as_it_may_is_full() -> None:
    _, book = learned(*[A] * KEYED_UNITS_MAX)
    assert first(book).full
    assert book.portion_for([], 0.0) is None
