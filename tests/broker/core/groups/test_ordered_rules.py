"""Single rules of ordered groups: limits, poison, what is gone, and what is refused."""

import pytest

from broker.core.groups import lease_book, ordered_book
from broker.core.groups.group_changes import AckedInTxn
from broker.core.groups.group_rules import mode_refusal
from broker.core.groups.key_lanes import SLOTS
from broker.core.groups.leases import Lease, Portion
from broker.core.groups.ordered_book import OrderedBook
from broker.core.groups.ordered_units import Unit
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import DeliveryLimit
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick, TxnId
from tests.broker.core.groups.ordered_parts import KEY, ordered_table, span

LIMIT = DeliveryLimit(2, KEY.vchannel, "o")
A, B = 1, 2


def new_book(
    mode: GroupMode = GroupMode.BY_KEY, limit: DeliveryLimit | None = None
) -> tuple[OrderedBook, int]:
    """With one member."""
    book = OrderedBook(ordered_table(mode, limit).groups[KEY])
    member = book.join("ann")
    assert isinstance(member, int)
    return book, member


def learn(book: OrderedBook, *lanes: tuple[int, ...], reached: int = 0) -> None:
    """Messages at the next ticks, in these lanes."""
    portion = book.portion_for([], 0.0)
    assert portion is not None
    assert portion.returned is None
    positions = [(TimeTick(it), lane) for it, lane in enumerate(lanes, portion.after + 1)]
    assert book.learn(positions, portion, TimeTick(reached or portion.after + len(lanes)))


def ready(book: OrderedBook, member: int, now_s: float = 0.0) -> list[Unit]:
    return book.ready([member], now_s)[member]


def lease(book: OrderedBook, member: int, now_s: float = 0.0) -> Lease:
    units = ready(book, member, now_s)
    assert units
    return book.lease_units(member, units, now_s)


def refused(answer: object) -> StreamingCode:
    assert isinstance(answer, Refusal), answer
    return answer.code


def test_empty_ticks_go_with_the_message_behind_them_and_the_last_ones_with_the_last() -> None:
    book, ann = new_book()
    portion = book.portion_for([ann], 0.0)
    assert portion is not None
    book.learn([(TimeTick(5), (A,)), (TimeTick(8), (B,))], portion, TimeTick(11))
    first = lease(book, ann)
    assert first.span == span(0, 11)
    assert book.take_acked(ann, first.number, [span(4, 5)]) == (span(0, 5),)
    assert refused(book.take_acked(ann, first.number, [span(6, 7)])) == (
        StreamingCode.INVALID_ARGUMENT
    )
    assert book.take_acked(ann, first.number, ()) == (span(5, 11),)
    assert refused(book.take_acked(ann, first.number, ())) == StreamingCode.INVALID_REQUEST_SEQ
    assert refused(book.give_back(ann, first.number, (), 0.0)) == StreamingCode.INVALID_REQUEST_SEQ


def test_what_is_given_back_takes_with_it_what_is_behind_and_that_counts_as_not_delivered() -> None:
    book, ann = new_book(limit=DeliveryLimit(5, KEY.vchannel, "o"))
    learn(book, (A,), (B,), (A, B), (A,))
    first = lease(book, ann)
    assert refused(book.give_back(ann, first.number, [span(7, 9)], 0.0)) == (
        StreamingCode.INVALID_ARGUMENT
    )
    assert book.give_back(ann, first.number, [span(0, 1)], 5.0) is None
    assert refused(book.take_acked(ann, first.number, [span(2, 3)])) == (
        StreamingCode.INVALID_REQUEST_SEQ
    )
    assert list(first.left) == [span(1, 2)]
    assert ready(book, ann) == []
    assert book.next_s(0.0) == 5.0
    again = lease(book, ann, 5.0)
    assert (list(again.left), again.times) == ([span(0, 1)], 2), "those behind it came once less"
    assert book.take_acked(ann, again.number, ()) == (span(0, 1),)
    book.state.acknowledge([span(0, 1)])
    assert ready(book, ann, 6.0) == [], "the one of both keys waits for the other key"
    assert book.take_acked(ann, first.number, ()) == (span(1, 2),)
    book.state.acknowledge([span(1, 2)])
    last = lease(book, ann, 6.0)
    assert (list(last.left), last.times) == ([span(2, 4)], 1)
    assert book.next_s(6.0) == last.until_s


def test_the_poison_of_a_key_holds_up_its_key_until_it_is_given_up() -> None:
    book, ann = new_book(limit=LIMIT)
    learn(book, (A,), (A,), (B,))
    first = lease(book, ann)
    book.expire(first.until_s)
    last = lease(book, ann, 20.0)
    assert (list(last.left), last.alone, last.record) == ([span(0, 1)], True, False)
    assert ready(book, ann, 20.0) == [], "one last delivery of the group after the other"
    assert book.begun(last)
    book.expire(last.until_s)
    (dying,) = book.exceeded
    assert list(dying.spans) == [span(0, 1)]
    assert [it.tick for it in ready(book, ann, 40.0)] == [3]
    book.state.give_up(dying.spans, "poison", 2, TimeTick(50))
    assert [it.tick for it in ready(book, ann, 40.0)] == [2], "its last delivery, too"


def test_a_last_delivery_that_is_given_back_before_it_began_comes_again() -> None:
    book, ann = new_book(limit=LIMIT)
    learn(book, (A,))
    assert book.give_back(ann, lease(book, ann).number, (), 0.0) is None
    for _ in range(2):
        last = lease(book, ann)
        assert last.alone
        assert book.give_back(ann, last.number, (), 0.0) is None
        assert book.exceeded == []
    last = lease(book, ann)
    assert book.begun(last)
    assert book.give_back(ann, last.number, (), 0.0) is None
    assert len(book.exceeded) == 1


def test_of_two_members_one_has_a_last_delivery_and_both_have_other_messages() -> None:
    book, ann = new_book(limit=LIMIT)
    bob = book.join("bob")
    assert isinstance(bob, int)
    lanes = {book.owners.owner(lane): lane for lane in range(SLOTS)}
    learn(book, (lanes[ann],), (lanes[bob],))
    for member, units in book.ready([ann, bob], 0.0).items():
        book.expire(book.lease_units(member, units, 0.0).until_s)
    learn(book, (SLOTS + lanes[bob],))
    found = book.ready([ann, bob], 20.0)
    assert [[it.tick for it in units] for units in found.values()] == [[1], [3]]
    last = book.lease_units(ann, found[ann], 20.0)
    assert last.alone
    assert [it.tick for it in ready(book, bob, 20.0)] == [3]
    book.leave(ann, 20.0)
    assert [it.tick for it in ready(book, bob, 20.0)] == [1]


def test_a_new_life_goes_on_counting_and_spares_what_had_its_last_delivery() -> None:
    state = ordered_table(GroupMode.BY_KEY, LIMIT).groups[KEY]
    state.try_again([span(0, 2)], 1)
    state.try_again([span(2, 3)], 2)
    book = OrderedBook(state, TimeTick(9))
    ann = book.join("ann")
    assert isinstance(ann, int)
    learn(book, (A,), (A,), (B,), (3,))
    assert book.exceeded == []
    first = lease(book, ann)
    assert (list(first.left), first.alone) == ([span(0, 1)], True)
    new = lease(book, ann)
    assert (list(new.left), new.times, new.record) == ([span(3, 4)], 1, True)
    assert book.take_acked(ann, first.number, ()) == (span(0, 1),)
    spared = lease(book, ann)
    assert (list(spared.left), spared.times, spared.alone) == ([span(2, 3)], 3, True)
    book.begun(spared)
    book.expire(spared.until_s)
    assert [list(it.spans) for it in book.exceeded] == [[span(2, 3)]]


def test_what_has_gone_from_the_log_is_settled_and_comes_back_when_that_fails() -> None:
    book, ann = new_book()
    learn(book, (A,), (A,))
    gone = book.gone(ready(book, ann)[:1])
    assert gone == (span(0, 1),)
    assert ready(book, ann) == []
    book.ack_failed(0, 0, gone, 1.0, 1)
    assert [it.tick for it in ready(book, ann, 1.0)] == [1]
    # Empty ticks, which no message is behind yet.
    book.ack_failed(0, 0, [span(2, 4)], 1.0, 1)
    assert [it.tick for it in ready(book, ann, 1.0)][:1] == [1]
    assert len(book.ready([ann], 1.0, span(2, 4))[ann]) == 1
    book.put_back(book.portion_for([ann], 1.0))  # type: ignore[arg-type]


def test_acknowledgements_in_two_ways_are_not_mixed_within_a_key() -> None:
    book, ann = new_book()
    learn(book, (A,), (A,), (B,))
    first = lease(book, ann)
    txn = TxnId(7)
    assert book.take_acked(ann, first.number, [span(0, 1)], txn) == (span(0, 1),)
    code = refused(book.take_acked(ann, first.number, [span(1, 2)]))
    assert code == StreamingCode.INVALID_ARGUMENT
    assert book.take_acked(ann, first.number, [span(2, 3)]) == (span(2, 3),)
    # The record of the transaction was refused: it is on the lease again, before the other one.
    book.ack_failed(ann, first.number, [span(0, 1)], 0.0, 1)
    assert refused(book.take_acked(ann, first.number, [span(1, 2)])) == code
    assert book.take_acked(ann, first.number, (), txn) == (span(0, 2),)


def test_a_rollback_takes_back_what_is_on_lease_behind_it() -> None:
    table = ordered_table(GroupMode.BY_KEY)
    book = OrderedBook(table.groups[KEY])
    ann = book.join("ann")
    assert isinstance(ann, int)
    learn(book, (A,), (A,), (B,))
    first = lease(book, ann)
    taken = book.take_acked(ann, first.number, [span(0, 1)], TxnId(7))
    assert not isinstance(taken, Refusal)
    table.hold(KEY.vchannel, AckedInTxn("g", TxnId(7), taken, 1), TimeTick(50))
    ((_, (held,)),) = table.end_txn(TxnId(7), None)
    book.let_go(held, 1.0)
    assert list(first.left) == [span(2, 3)]
    again = lease(book, ann, 1.0)
    assert (list(again.left), again.times) == ([span(0, 1)], 2)
    book.state.acknowledge([span(0, 2)])
    book.let_go(held, 1.0)  # it was acknowledged meanwhile
    assert ready(book, ann, 1.0) == []


def test_numbers_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_book, "MEMBERS_MAX", 1)
    monkeypatch.setattr(lease_book, "SPANS_MAX", 2)
    monkeypatch.setattr(ordered_book, "SPANS_MAX", 4)
    book, ann = new_book()
    assert refused(book.join("bob")) == StreamingCode.RESOURCE_ACQUIRED
    learn(book, (A,), (B,), (3,))
    first = lease(book, ann)
    book.state.acknowledge([span(10, 11), span(20, 21)])
    assert refused(book.take_acked(ann, first.number, [span(1, 2)])) == (
        StreamingCode.RESOURCE_ACQUIRED
    )
    book.edge = TimeTick(30)
    assert book.portion_for([ann], 0.0) is None, "so many ranges are acknowledged above the floor"
    book.units_max = 3
    assert book.portion_for([], 0.0) is None
    monkeypatch.setattr(ordered_book, "LEASES_MAX", 1)
    assert book.portion_for([ann], 0.0) is None
    assert refused(book.take_acked(ann, 99, ())) == StreamingCode.INVALID_REQUEST_SEQ


def test_members_are_shown_with_what_they_own() -> None:
    book, ann = new_book(GroupMode.BY_VCHANNEL)
    bob = book.join("bob", "b")
    assert isinstance(bob, int)
    assert [it.owns for it in book.members([], 0.0)] == [1, 0]
    book.leave(ann, 0.0)
    assert [it.owns for it in book.members([], 0.0)] == [1]
    keyed, _ = new_book()
    assert [it.owns for it in keyed.members([], 0.0)] == [SLOTS]


def test_somebody_is_chosen_when_nobody_claims_a_vchannel() -> None:
    book, ann = new_book(GroupMode.BY_VCHANNEL)
    others = [book.join("bob", "b"), book.join("cid", "c")]
    book.leave(ann, 1.0)
    until_s = book.next_s(1.0)
    assert until_s is not None
    assert book.next_s(until_s) is None
    assert book.owners.owner(0) in others


def test_a_vchannel_is_read_on_for_its_owner_when_all_before_is_settled() -> None:
    book, ann = new_book(GroupMode.BY_VCHANNEL)
    bob = book.join("bob")
    assert isinstance(bob, int)
    assert book.portion_for([bob], 0.0) is None
    portion = book.portion_for([bob, ann], 0.0)
    assert portion is not None
    assert book.learn([(TimeTick(3), (0,))], portion, TimeTick(4))
    first = book.lease_units(ann, book.ready([bob, ann], 0.0)[ann], 0.0)
    assert book.portion_for([bob, ann], 0.0) is None
    assert book.take_acked(ann, first.number, ()) == (span(0, 4),)
    assert book.portion_for([ann], 0.0) is None
    book.state.acknowledge([span(0, 4)])
    assert book.portion_for([ann], 0.0) == Portion(TimeTick(4))


def test_messages_without_a_key_go_to_any_member_in_no_order() -> None:
    book, ann = new_book()
    bob = book.join("bob")
    assert isinstance(bob, int)
    learn(book, (), (), ())
    assert len(book.ready([bob, ann], 0.0)[bob]) == 3
    first = book.lease_units(bob, book.ready([bob], 0.0)[bob], 0.0)
    assert book.take_acked(bob, first.number, [span(2, 3)]) == (span(2, 3),)
    assert book.give_back(bob, first.number, [span(0, 1)], 0.0) is None
    assert [it.tick for it in ready(book, ann)] == [1]


def test_a_group_keeps_its_mode() -> None:
    by_key, shared = GroupMode.BY_KEY, GroupMode.SHARED
    assert mode_refusal(KEY, None, by_key) is None
    assert mode_refusal(KEY, by_key, by_key) is None
    assert refused(mode_refusal(KEY, shared, by_key)) == StreamingCode.INVALID_ARGUMENT
