"""The book of leases against a naive model: nothing is lost, nothing acknowledged comes again."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from broker.core.groups import lease_book
from broker.core.groups.group_changes import GroupCreated, MessagesAcked
from broker.core.groups.group_table import GroupTable
from broker.core.groups.lease_book import LeaseBook
from broker.core.groups.leases import Portion
from broker.core.groups.tick_spans import TickSpans
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import GroupKey, TickSpan
from broker.model.ids import TimeTick

KEY = GroupKey("by-dev-rootcoord-dml_0_7v0", "g")
LEASE_S = 10.0


def span(after: int, upto: int) -> TickSpan:
    return TickSpan(TimeTick(after), TimeTick(upto))


def new_table() -> GroupTable:
    table = GroupTable()
    table.apply(KEY.vchannel, GroupCreated("g", int(LEASE_S * 1000), TimeTick(0)), TimeTick(1))
    return table


def new_book() -> LeaseBook:
    return LeaseBook(new_table().groups[KEY])


@dataclass
class Naive:
    """One run: a log of ticks with messages, and who has which of them."""

    rng: random.Random
    table: GroupTable = field(default_factory=new_table)
    end: int = 1
    messages: list[int] = field(default_factory=list)
    acked: set[int] = field(default_factory=set)
    held: dict[int, tuple[int, set[int], float]] = field(default_factory=dict)
    """By lease: its member, its messages, and when it is over."""
    writing: list[tuple[int, int, tuple[TickSpan, ...], int]] = field(default_factory=list)
    members: list[int] = field(default_factory=list)
    now_s: float = 0.0
    tick: int = 1_000_000

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Whatever is in memory is gone; what is being written may land or not."""
        for _, _, spans, _ in getattr(self, "writing", []):
            if self.rng.random() < 0.5:
                self.land(spans)
        self.book = LeaseBook(GroupTable(self.table.snapshots()).groups[KEY])
        self.table = GroupTable([self.book.state.snapshot()])
        self.book = LeaseBook(self.table.groups[KEY])
        self.held, self.writing, self.members = {}, [], []

    def land(self, spans: tuple[TickSpan, ...]) -> None:
        self.tick += 1
        self.table.apply(KEY.vchannel, MessagesAcked("g", spans), TimeTick(self.tick))
        self.acked |= set(self.inside(spans))

    def inside(self, spans) -> list[int]:  # type: ignore[no-untyped-def]
        return [it for it in self.messages for each in spans if each.after < it <= each.upto]

    def append(self) -> None:
        for _ in range(self.rng.randrange(1, 5)):
            self.end += self.rng.randrange(1, 4)
            self.messages.append(self.end)

    def take(self, *, all_of_it: bool = False) -> bool:
        """Read a portion and lease it; False when there was nothing to read."""
        portion = self.book.portion(self.now_s)
        if portion is None:
            return False
        last = self.end if portion.returned is None else portion.returned.spans.end
        if portion.after >= last:
            self.book.put_back(portion)
            return False
        reached = last if all_of_it else self.rng.randint(portion.after + 1, last)
        ends = [it for it in self.messages if portion.after < it <= last]
        if ends and not all_of_it and self.rng.random() < 0.7:
            reached = self.rng.choice(ends)
        found = self.inside(self.book.wanted(portion, TimeTick(reached)))
        if not found and (portion.returned is None or reached == last):
            for gone in self.book.nothing_left(portion, TimeTick(reached)):
                self.land((gone,))
            return portion.returned is not None
        if not found or not self.members or (not all_of_it and self.rng.random() < 0.1):
            self.book.put_back(portion)
            return portion.returned is not None
        self.lease(portion, reached, found)
        return True

    def lease(self, portion: Portion, reached: int, found: list[int]) -> None:
        member = self.rng.choice(self.members)
        lease = self.book.lease(member, portion, TimeTick(reached), self.now_s)
        others = {it for _, held, _ in self.held.values() for it in held}
        written = {it for _, _, spans, _ in self.writing for it in self.inside(spans)}
        assert not set(found) & self.acked, "delivered though acknowledged"
        assert not set(found) & others, "two members have the same message"
        assert not set(found) & written, "delivered while its acknowledgement is written"
        assert set(found) == set(self.inside(lease.left))
        self.held[lease.number] = (member, set(found), lease.until_s)

    def ack(self) -> None:
        if not self.held:
            return
        number = self.rng.choice(list(self.held))
        member, held, _ = self.held[number]
        some = [] if self.rng.random() < 0.6 else self.rng.sample(sorted(held), 1)
        spans = [self.up_to(it) for it in some]
        times = self.book.times_of(number)
        taken = self.book.take_acked(member, number, spans)
        assert not isinstance(taken, Refusal), taken
        assert set(self.inside(taken)) == (set(some) if some else held)
        self.writing.append((member, number, taken, times))
        self.release(number, held - set(self.inside(taken)))

    def release(self, number: int, rest: set[int]) -> None:
        member, _, until_s = self.held.pop(number)
        if rest:
            self.held[number] = (member, rest, until_s)

    def up_to(self, tick: int) -> TickSpan:
        """The message with the ticks before it that hold none, or without them."""
        before = max([it for it in self.messages if it < tick], default=0)
        book, low = self.book, self.rng.choice([before, tick - 1])
        starts = [it.span.after for it in book._leases.values() if it.left.has(TimeTick(tick))]
        return span(max(low, *starts, 0), tick)

    def answer(self) -> None:
        if not self.writing:
            return
        member, number, spans, times = self.writing.pop(self.rng.randrange(len(self.writing)))
        if self.rng.random() < 0.8:
            self.land(spans)
            return
        self.book.ack_failed(member, number, spans, self.now_s, times)
        if number in self.held:
            self.held[number][1].update(self.inside(spans))

    def give_back(self) -> None:
        if self.held:
            number = self.rng.choice(list(self.held))
            member, held, _ = self.held[number]
            due_s = self.now_s + self.rng.choice([0, 5])
            some = [] if self.rng.random() < 0.5 else self.rng.sample(sorted(held), 1)
            spans = [span(it - 1, it) for it in some]
            assert self.book.give_back(member, number, spans, due_s) is None
            self.release(number, held - set(some) if some else set())

    def extend(self) -> None:
        if self.held:
            number = self.rng.choice(list(self.held))
            member, held, _ = self.held[number]
            assert self.book.extend(member, number, self.now_s) is None
            self.held[number] = (member, held, self.now_s + LEASE_S)

    def wait(self) -> None:
        self.now_s += self.rng.choice([1, 4, 11])
        over = [it for it, (_, _, until_s) in self.held.items() if until_s <= self.now_s]
        # Leases whose messages are all being acknowledged are over in the book already.
        assert self.book.expire(self.now_s) >= len(over)
        for number in over:
            del self.held[number]

    def join(self) -> None:
        number = self.book.join("m")
        assert isinstance(number, int)
        self.members.append(number)

    def leave(self) -> None:
        if self.members:
            member = self.members.pop(self.rng.randrange(len(self.members)))
            self.book.leave(member, self.now_s)
            self.held = {it: held for it, held in self.held.items() if held[0] != member}

    def step(self) -> None:
        steps: list[Callable[[], object]] = [
            self.append,
            self.take,
            self.ack,
            self.answer,
            self.give_back,
            self.extend,
        ]
        steps += [self.wait, self.join, self.leave, self.restart]
        self.rng.choices(steps, [4, 8, 6, 6, 2, 1, 2, 2, 1, 0.3])[0]()
        floor = self.book.state.floor
        assert {it for it in self.messages if it <= floor} <= self.acked

    def drain(self) -> None:
        """Every member does its work: all that is left comes, once, and the floor passes it."""
        while self.writing:
            self.answer()
        self.now_s += 100
        self.book.expire(self.now_s)
        self.held = {}
        self.join()
        left = set(self.messages) - self.acked
        came: list[int] = []
        while self.take(all_of_it=True):
            for number, (member, held, _) in list(self.held.items()):
                came += held
                taken = self.book.take_acked(member, number, ())
                assert not isinstance(taken, Refusal)
                self.land(taken)
                del self.held[number]
        assert sorted(came) == sorted(left)
        assert self.book.state.floor >= max(self.messages, default=0)
        assert len(self.book.state.acked) == 0


@pytest.mark.parametrize("seed", range(300))
def test_whatever_happens_what_is_left_comes_and_what_is_acknowledged_never(seed: int) -> None:
    run = Naive(random.Random(seed))
    for _ in range(120):
        run.step()
    run.drain()


def leased(book: LeaseBook, member: int, upto: int, now_s: float = 0.0) -> int:
    portion = book.portion(now_s)
    assert portion is not None
    return book.lease(member, portion, TimeTick(upto), now_s).number


def test_a_lease_is_settled_by_its_member_alone_and_once() -> None:
    book = new_book()
    ann, bob = book.join("ann"), book.join("bob")
    assert isinstance(ann, int)
    assert isinstance(bob, int)
    number = leased(book, ann, 10)
    for answer in (
        book.take_acked(bob, number, ()),
        book.give_back(bob, number, (), 0.0),
        book.extend(bob, number, 0.0),
        book.take_acked(ann, number + 1, ()),
    ):
        assert isinstance(answer, Refusal)
        assert answer.code is StreamingCode.INVALID_REQUEST_SEQ
    for bad in (span(0, 11), span(10, 12), span(12, 14)):
        for answer in (
            book.take_acked(ann, number, [bad]),
            book.give_back(ann, number, [bad], 0.0),
        ):
            assert isinstance(answer, Refusal)
            assert answer.code is StreamingCode.INVALID_ARGUMENT
    assert book.take_acked(ann, number, [span(2, 4)]) == (span(2, 4),)
    again = book.take_acked(ann, number, [span(2, 4)])
    assert isinstance(again, Refusal)
    assert book.take_acked(ann, number, ()) == (span(0, 2), span(4, 10))
    assert isinstance(book.take_acked(ann, number, ()), Refusal)


def test_deliveries_are_counted_and_members_are_shown() -> None:
    book = new_book()
    ann = book.join("ann")
    assert isinstance(ann, int)
    assert book.is_member(ann)
    number = leased(book, ann, 10, 1.0)
    assert book.times_of(number) == 1
    assert book.next_s(1.0) == 1.0 + LEASE_S
    (view,) = book.members([ann], 4.0)
    assert (view.waiting, view.leases, view.oldest_s) == (True, 1, 3.0)
    assert book.expire(1.0 + LEASE_S) == 1
    assert book.times_of(leased(book, ann, 10, 20.0)) == 2
    assert book.times_of(number) == 1
    assert book.redelivered == 1
    book.leave(ann, 21.0)
    book.leave(ann, 21.0)
    assert not book.has_members
    assert book.next_s(20.0) == 21.0
    assert book.next_s(21.0) is None, "it waits for a member, not for a time"


def test_numbers_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MEMBERS_MAX", "LEASES_MAX", "SPANS_MAX"):
        monkeypatch.setattr(lease_book, name, 4)
    book = new_book()
    members = [book.join("m") for _ in range(5)]
    assert isinstance(members[4], Refusal)
    member = members[0]
    assert isinstance(member, int)
    first = leased(book, member, 10)
    assert leased(book, member, 20)
    # Half of the spans are kept for what is leased already.
    assert book.portion(0.0) is None
    assert book.give_back(member, first, [span(4, 6)], 0.0) is None
    assert leased(book, member, 10)
    for at in (1, 3):
        book.state.acknowledge([span(100 + 5 * at, 101 + 5 * at)])
    book.state.acknowledge([span(200, 201)])
    assert isinstance(book.take_acked(member, first, [span(1, 2), span(7, 8)]), Refusal)
    assert book.take_acked(member, first, ()) == (span(0, 4), span(6, 10))
    book.ack_failed(member, first, [span(0, 4), span(6, 10)], 0.0, 1)
    first = leased(book, member, 10)
    book.state.seek(TimeTick(0), TimeTick(2))
    assert book.give_back(member, first, [span(1, 2)], 0.0) is None
    assert leased(book, member, 2)
    assert book.give_back(member, first, [span(3, 4)], 0.0) is None
    assert book.portion(0.0) is None, "too many leases"
    assert book.held_back


def test_a_new_life_with_many_ranges_leases_what_lies_between_them_and_nothing_above(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_book, "SPANS_MAX", 4)
    state = new_book().state
    state.acknowledge([span(at, at + 1) for at in (2, 4, 6)])
    book = LeaseBook(state)
    member = book.join("m")
    assert isinstance(member, int)
    first = leased(book, member, 7)
    assert book.portion(0.0) is None, "half of the ranges are kept for what is leased already"
    assert book.held_back, "it comes when the lease is settled"
    taken = book.take_acked(member, first, ())
    assert not isinstance(taken, Refusal)
    state.acknowledge(taken)
    assert state.floor == 7
    assert book.portion(0.0) is not None
    assert not book.held_back


def test_what_is_given_back_one_by_one_for_later_does_not_grow_without_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_book, "SPANS_MAX", 8)
    book = new_book()
    member = book.join("m")
    assert isinstance(member, int)
    number = leased(book, member, 10)
    for at in range(4):
        assert book.give_back(member, number, [span(at, at + 1)], 60.0) is None
    assert book.portion(0.0) is None
    assert book.portion(60.0) is not None


def test_what_the_log_no_longer_holds_is_let_go_up_to_where_it_was_read() -> None:
    book = new_book()
    member = book.join("m")
    assert isinstance(member, int)
    number = leased(book, member, 10)
    assert book.give_back(member, number, [span(0, 2), span(4, 8)], 0.0) is None
    portion = book.portion(0.0)
    assert portion is not None
    assert portion.returned is not None
    assert book.nothing_left(portion, TimeTick(6)) == (span(0, 2), span(4, 6))
    rest = book.portion(0.0)
    assert rest is not None
    assert rest.returned is not None
    assert list(rest.returned.spans) == [span(6, 8)]
    assert list(book.wanted(rest, TimeTick(7))) == [span(6, 7)]
    book.put_back(rest)
    assert book.portion(0.0) == rest
    assert list(TickSpans()) == []


def test_ticks_without_messages_before_something_acknowledged_are_settled() -> None:
    book = new_book()
    book.state.acknowledge([span(4, 6), span(8, 9)])
    portion = book.portion(0.0)
    assert portion == Portion(TimeTick(0))
    assert book.nothing_left(portion, TimeTick(20)) == (span(0, 4), span(6, 8))
    assert book.edge == 9
    book.state.acknowledge([span(0, 4), span(6, 8)])
    assert book.state.floor == 9
    portion = book.portion(0.0)
    assert portion is not None
    assert book.nothing_left(portion, TimeTick(20)) == ()
