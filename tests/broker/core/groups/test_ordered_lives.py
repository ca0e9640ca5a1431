"""What an earlier life of an ordered Group settled, as its successor finds it."""

import pytest

from broker.core.groups.group_changes import AckedInTxn, MessagesAcked, MessagesDying
from broker.core.groups.group_table import GroupTable
from broker.core.groups.leases import NO_TXN
from broker.core.groups.ordered_book import OrderedBook
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import DeliveryLimit, TickSpan
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick, TxnId
from tests.broker.core.groups.ordered_parts import KEY, ordered_table, span
from tests.broker.core.groups.test_ordered_rules import A, B, lease, ready

TXN = TxnId(7)


def new_life(table: GroupTable) -> tuple[OrderedBook, int]:
    book = OrderedBook(table.groups[KEY])
    member = book.join("ann")
    assert isinstance(member, int)
    return book, member


def read(book: OrderedBook, upto: int, *messages: tuple[int, int]) -> None:
    """One reading, which finds messages: their ticks and lanes."""
    portion = book.portion_for([], 0.0)
    assert portion is not None
    assert book.learn(
        [(TimeTick(tick), (lane,)) for tick, lane in messages], portion, TimeTick(upto)
    )


def acked(table: GroupTable, *spans: TickSpan) -> None:
    table.apply(KEY.vchannel, MessagesAcked("g", spans), TimeTick(60))


def ack_all(table: GroupTable, book: OrderedBook, member: int) -> None:
    taken = book.take_acked(member, lease(book, member).number, ())
    assert not isinstance(taken, Refusal)
    acked(table, *taken)


@pytest.mark.parametrize("txn", [NO_TXN, TXN])
def test_what_an_earlier_life_read_in_two_steps_does_not_hold_the_floor(txn: TxnId) -> None:
    table = ordered_table(GroupMode.BY_KEY)
    book, ann = new_life(table)
    read(book, 11, (9, A))
    read(book, 12, (12, B))
    taken = book.take_acked(ann, lease(book, ann).number, [span(11, 12)], txn)
    assert taken == (span(11, 12),)
    if txn:
        table.hold(KEY.vchannel, AckedInTxn("g", txn, taken, 1), TimeTick(50))
    book, ann = new_life(table)
    read(book, 12, (9, A), (12, B))
    # It is late: the successor has read by then.
    if txn:
        table.end_txn(txn, TimeTick(60))
    else:
        acked(table, *taken)
    ack_all(table, book, ann)
    assert ready(book, ann) == []
    unowned = book.take_unowned()
    assert unowned == (span(9, 11),)
    assert book.take_unowned() == ()
    acked(table, *unowned)
    assert table.groups[KEY].floor == 12


def test_what_dies_late_is_left_to_its_copies_and_only_the_rest_is_settled() -> None:
    table = ordered_table(GroupMode.BY_KEY, DeliveryLimit(3, KEY.vchannel, "o"))
    book, ann = new_life(table)
    read(book, 12, (9, A), (12, B))
    table.apply(KEY.vchannel, MessagesDying("g", (span(11, 12),), "bad", 1), TimeTick(50))
    ack_all(table, book, ann)
    assert ready(book, ann) == []
    assert book.take_unowned() == (span(9, 11),)


def test_empty_ticks_that_could_not_be_settled_leave_out_what_lies_between_them() -> None:
    table = ordered_table(GroupMode.BY_KEY)
    book, ann = new_life(table)
    read(book, 12, (12, A))
    acked(table, span(2, 4), span(5, 7), span(11, 12))
    assert ready(book, ann) == []
    unowned = book.take_unowned()
    assert unowned == (span(0, 2), span(4, 5), span(7, 11))
    book.ack_failed(0, 0, unowned, 1.0, 1)
    again = book.ready([ann], 1.0)[ann]
    assert [it.span for it in again] == list(unowned)
    assert book.gone(again) == unowned
    acked(table, *unowned)
    assert ready(book, ann, 1.0) == []
    assert (table.groups[KEY].floor, book.take_unowned()) == (12, ())


def test_empty_ticks_that_were_passed_while_they_were_held_do_not_hold_the_floor() -> None:
    table = ordered_table(GroupMode.BY_KEY)
    held = AckedInTxn("g", TXN, (span(3, 8),), 1)
    table.hold(KEY.vchannel, held, TimeTick(50))
    book, ann = new_life(table)
    read(book, 3, (3, A))
    portion = book.portion_for([], 0.0)
    assert portion is not None
    assert book.nothing_left(portion, TimeTick(4)) == ()
    read(book, 9, (8, B), (9, A))
    ((_, (part,)),) = table.end_txn(TXN, None)
    book.let_go(part, 1.0)
    ack_all(table, book, ann)
    unowned = book.take_unowned()
    assert unowned == (span(3, 4),)
    acked(table, *unowned)
    assert table.groups[KEY].floor == 9
