"""Leases of a group with a limit of deliveries: what counts, and what is recorded before."""

from dataclasses import replace

import pytest

from broker.core.groups import lease_book
from broker.core.groups.group_changes import (
    AckedInTxn,
    GroupAltered,
    GroupCreated,
    MessagesDying,
    MessagesTried,
)
from broker.core.groups.group_state import GroupState
from broker.core.groups.group_table import GroupTable
from broker.core.groups.lease_book import LeaseBook
from broker.core.groups.leases import Lease
from broker.model.failure import Refusal
from broker.model.ids import TimeTick, TxnId
from tests.broker.core.groups.made_changes import LIMIT
from tests.broker.core.groups.test_lease_book import KEY, span


def new_state() -> GroupState:
    table = GroupTable()
    table.apply(KEY.vchannel, GroupCreated("g", 10_000, TimeTick(0), LIMIT), TimeTick(1))
    return table.groups[KEY]


def joined(book: LeaseBook) -> int:
    member = book.join("m")
    assert isinstance(member, int)
    return member


def leased(book: LeaseBook, member: int, upto: int, now_s: float = 0.0) -> Lease:
    portion = book.portion(now_s)
    assert portion is not None
    return book.lease(member, portion, TimeTick(upto), now_s)


def test_what_an_earlier_book_may_have_leased_is_recorded_and_new_messages_are_not() -> None:
    book = LeaseBook(new_state(), TimeTick(10))
    member = joined(book)
    first, second = leased(book, member, 10), leased(book, member, 20)
    assert (first.record, first.times) == (True, 1)
    assert (second.record, second.times) == (False, 1)
    assert LeaseBook(new_state()).state.tried.__len__() == 0


def test_a_second_delivery_is_recorded_and_the_last_one_is_alone_and_counts_once_begun() -> None:
    book = LeaseBook(new_state())
    member = joined(book)
    leased(book, member, 10)
    assert book.expire(10.0) == 1
    second = leased(book, member, 10, 10.0)
    assert (second.times, second.record, second.alone) == (2, True, False)
    assert book.expire(20.0) == 1
    for now_s in (20.0, 30.0):
        third = leased(book, member, 10, now_s)
        assert (third.times, third.record, third.alone) == (3, False, True)
        assert book.expire(now_s + 10.0) == 1
        assert book.exceeded == []
    last = leased(book, member, 10, 40.0)
    assert book.begin(member, last.number) is last
    assert book.begun(last)
    assert book.expire(50.0) == 1
    assert isinstance(book.begin(member, last.number), Refusal)
    assert not book.begun(last)
    (over,) = book.exceeded
    assert (list(over.spans), over.times) == ([span(0, 10)], 3)
    assert book.portion(60.0).returned is None  # type: ignore[union-attr]


def test_leases_that_run_out_are_counted_until_the_member_settles_one() -> None:
    book = LeaseBook(new_state())
    member = joined(book)
    for now_s in (0.0, 10.0):
        leased(book, member, 10, now_s)
        assert book.expire(now_s + 10.0) == 1
    (view,) = book.members([], 20.0)
    assert (view.ran_out, view.leases) == (2, 0)
    lease = leased(book, member, 10, 20.0)
    assert not isinstance(book.take_acked(member, lease.number, []), Refusal)
    (view,) = book.members([], 20.0)
    assert view.ran_out == 0


def test_a_lease_whose_count_was_not_stored_was_no_delivery() -> None:
    book = LeaseBook(new_state(), TimeTick(10))
    member = joined(book)
    first = leased(book, member, 10)
    book.not_given(first, 1.0)
    book.not_given(first, 1.0)
    assert leased(book, member, 10, 1.0).times == 1


def test_a_new_book_begins_with_the_recorded_counts_and_delivers_nothing_that_dies() -> None:
    table = GroupTable()
    table.apply(KEY.vchannel, GroupCreated("g", 10_000, TimeTick(0), LIMIT), TimeTick(1))
    table.apply(KEY.vchannel, MessagesTried("g", (span(2, 4),), 2), TimeTick(30))
    table.apply(KEY.vchannel, MessagesTried("g", (span(6, 7),), 4), TimeTick(31))
    table.apply(KEY.vchannel, MessagesDying("g", (span(8, 9),), "bad", 1), TimeTick(32))
    assert table.groups[KEY].has_exceeded
    book = LeaseBook(table.groups[KEY])
    member = joined(book)
    (over,) = book.exceeded
    assert list(over.spans) == [span(6, 7)]
    again = leased(book, member, 4)
    assert (list(again.left), again.times, again.alone) == ([span(2, 4)], 3, True)
    fresh = leased(book, member, 20)
    assert list(fresh.left) == [span(0, 2), span(4, 6), span(7, 8), span(9, 20)]


def test_last_deliveries_follow_each_other_so_that_what_kills_the_node_kills_no_other() -> None:
    book = LeaseBook(new_state())
    member = joined(book)
    leased(book, member, 10)
    for now_s in (10.0, 20.0):
        assert book.expire(now_s) == 1
        if now_s < 20.0:
            leased(book, member, 10, now_s)
    first = leased(book, member, 1, 20.0)
    assert first.alone
    again = book.portion(20.0)
    assert again is not None
    assert again.returned is None, "a second last delivery beside the first"
    assert book.held_back, "it comes when the first is settled"
    assert not isinstance(book.take_acked(member, first.number, []), Refusal)
    assert leased(book, member, 2, 20.0).alone


def test_what_had_its_last_delivery_when_a_book_ended_has_one_more_and_then_dies() -> None:
    table = GroupTable()
    table.apply(KEY.vchannel, GroupCreated("g", 10_000, TimeTick(0), LIMIT), TimeTick(1))
    table.apply(KEY.vchannel, MessagesTried("g", (span(0, 1),), 3), TimeTick(30))
    assert not table.groups[KEY].has_exceeded
    book = LeaseBook(table.groups[KEY])
    member = joined(book)
    assert book.exceeded == []
    for _ in range(2):
        more = leased(book, member, 1)
        assert (more.alone, more.times) == (True, 4)
        # The member leaves before it has begun: that was no delivery.
        book.leave(member, 0.0)
        assert book.exceeded == []
        member = joined(book)
    more = leased(book, member, 1)
    assert book.begun(more)
    book.leave(member, 0.0)
    (over,) = book.exceeded
    assert (list(over.spans), over.times) == ([span(0, 1)], 4)
    table.apply(KEY.vchannel, MessagesTried("g", (span(1, 2),), 4), TimeTick(31))
    assert table.groups[KEY].has_exceeded
    (over,) = LeaseBook(table.groups[KEY]).exceeded
    assert list(over.spans) == [span(1, 2)]


def test_under_a_smaller_limit_nothing_dies_before_a_delivery_on_its_own() -> None:
    table = GroupTable()
    limit = replace(LIMIT, deliveries_max=10)
    table.apply(KEY.vchannel, GroupCreated("g", 10_000, TimeTick(0), limit), TimeTick(1))
    for at, (times, spans) in enumerate({7: (0, 4), 9: (6, 8), 1: (8, 9)}.items()):
        table.apply(KEY.vchannel, MessagesTried("g", (span(*spans),), times), TimeTick(30 + at))
    table.apply(KEY.vchannel, GroupAltered("g", 10_000, LIMIT), TimeTick(40))
    assert [(it.times, it.spans) for it in table.groups[KEY].tried] == [
        (1, (span(8, 9),)),
        (2, (span(0, 4), span(6, 8))),
    ]
    assert not table.groups[KEY].has_exceeded
    book = LeaseBook(table.groups[KEY])
    assert book.exceeded == []
    member = joined(book)
    assert not leased(book, member, 9).alone
    last = leased(book, member, 1)
    assert (last.alone, last.times, list(last.left)) == (True, 3, [span(0, 1)])
    table.apply(KEY.vchannel, GroupAltered("g", 10_000, limit), TimeTick(41))
    assert [it.times for it in table.groups[KEY].tried] == [1, 2]
    table.apply(KEY.vchannel, GroupAltered("g", 10_000, None), TimeTick(42))
    assert not table.groups[KEY].has_exceeded


def test_new_messages_have_their_turn_beside_those_that_come_again() -> None:
    book = LeaseBook(new_state())
    member = joined(book)
    lease = leased(book, member, 10)
    assert book.give_back(member, lease.number, [], 0.0) is None
    new = book.portion(0.0, new_first=True)
    assert new is not None
    assert (new.after, new.returned) == (10, None)
    again = book.portion(0.0)
    assert again is not None
    assert again.returned is not None
    book.put_back(again)


def test_without_room_for_new_messages_those_come_that_make_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_book, "SPANS_MAX", 2)
    book = LeaseBook(new_state())
    member = joined(book)
    lease = leased(book, member, 10)
    assert book.give_back(member, lease.number, [], 0.0) is None
    again = book.portion(0.0, new_first=True)
    assert again is not None
    assert again.returned is not None


def test_too_many_counts_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_book, "TRIED_MAX", 0)
    book = LeaseBook(new_state(), TimeTick(10))
    assert not leased(book, joined(book), 10).record


def test_what_an_open_transaction_holds_is_not_tried_again_by_a_new_book() -> None:
    table = GroupTable()
    table.apply(KEY.vchannel, GroupCreated("g", 10_000, TimeTick(0), LIMIT), TimeTick(1))
    table.apply(KEY.vchannel, MessagesTried("g", (span(2, 4),), 2), TimeTick(30))
    table.hold(KEY.vchannel, AckedInTxn("g", TxnId(7), (span(1, 5),), 2), TimeTick(31))
    book = LeaseBook(table.groups[KEY])
    fresh = leased(book, joined(book), 20)
    assert list(fresh.left) == [span(0, 1), span(5, 20)]


def test_what_is_to_die_and_cannot_yet_keeps_new_messages_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_book, "SPANS_MAX", 6)
    book = LeaseBook(new_state())
    member = joined(book)
    lease = leased(book, member, 10)
    for at in range(3):
        taken = book.take_acked(member, lease.number, [span(at, at + 1)])
        assert not isinstance(taken, Refusal)
        book.ack_failed(member, 0, taken, 0.0, LIMIT.deliveries_max)
    assert len(book.exceeded) == 3
    assert book.extend(member, lease.number, 1.0) is None
    assert book.portion(0.0) is None
    book.exceeded.clear()
    assert book.portion(0.0) is not None


def last_lease(book: LeaseBook, member: int) -> Lease:
    """The last delivery of a message, which has not begun."""
    while not (lease := leased(book, member, 10, 0.0)).alone:
        assert book.give_back(member, lease.number, [], 0.0) is None
    return lease


def test_a_last_delivery_that_never_began_is_none_when_it_is_given_back() -> None:
    book = LeaseBook(new_state())
    member = joined(book)
    last = last_lease(book, member)
    for _ in range(3):
        assert book.give_back(member, last.number, [], 0.0) is None
        assert book.exceeded == []
        last = leased(book, member, 10, 0.0)
        assert (last.times, last.alone) == (3, True)
    assert book.begun(last)
    assert book.give_back(member, last.number, [], 0.0) is None
    assert [it.times for it in book.exceeded] == [3]


def test_nor_when_its_acknowledgement_fails_or_is_rolled_back() -> None:
    table = GroupTable()
    table.apply(KEY.vchannel, GroupCreated("g", 10_000, TimeTick(0), LIMIT), TimeTick(1))
    book = LeaseBook(table.groups[KEY])
    member = joined(book)
    last = last_lease(book, member)
    times = book.times_of(last.number)
    taken = book.take_acked(member, last.number, [])
    assert not isinstance(taken, Refusal)
    book.ack_failed(member, last.number, taken, 0.0, times)
    last = leased(book, member, 10, 0.0)
    times = book.times_of(last.number)
    taken = book.take_acked(member, last.number, [], TxnId(7))
    assert not isinstance(taken, Refusal)
    table.hold(KEY.vchannel, AckedInTxn("g", TxnId(7), taken, times), TimeTick(30))
    ((_, (held,)),) = table.end_txn(TxnId(7), None)
    book.let_go(held, 0.0)
    assert book.exceeded == []
    assert leased(book, member, 10, 0.0).alone
