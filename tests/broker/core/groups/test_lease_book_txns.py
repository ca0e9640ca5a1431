"""Transactions that acknowledge, and the book of leases: each message is in one place at a time."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from broker.core.groups import lease_book
from broker.core.groups.group_changes import AckedInTxn
from broker.core.groups.group_state import HeldAck
from broker.core.groups.group_table import GroupTable
from broker.core.groups.lease_book import LeaseBook
from broker.model.failure import Refusal
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick, TxnId
from tests.broker.core.groups.test_lease_book import KEY, new_table, span

TXN = TxnId(77)


def hold(table: GroupTable, spans: tuple[TickSpan, ...], txn: TxnId = TXN, times: int = 1) -> None:
    table.hold(KEY.vchannel, AckedInTxn("g", txn, spans, times), TimeTick(1_000))


def joined(book: LeaseBook) -> int:
    member = book.join("m")
    assert isinstance(member, int)
    return member


def take(book: LeaseBook, member: int, upto: int) -> tuple[int, list[TickSpan], int]:
    """Lease what there is up to a tick: its number, its ticks, and how often they came."""
    portion = book.portion(0.0)
    assert portion is not None
    lease = book.lease(member, portion, TimeTick(upto), 0.0)
    return lease.number, list(lease.left), lease.times


def test_what_a_transaction_holds_is_leased_to_nobody_until_it_is_rolled_back() -> None:
    table = new_table()
    book = LeaseBook(table.groups[KEY])
    member = joined(book)
    number, _, times = take(book, member, 10)
    taken = book.take_acked(member, number, ())
    assert taken == (span(0, 10),)
    hold(table, (span(0, 10),), times=times)
    _, left, _ = take(book, member, 20)
    assert left == [span(10, 20)]
    ((key, held),) = table.end_txn(TXN, None)
    assert key == KEY
    for each in held:
        book.let_go(each, 0.0)
    assert take(book, member, 10)[1:] == ([span(0, 10)], 2)


def test_a_new_book_leaves_out_what_an_earlier_life_gave_to_a_transaction() -> None:
    table = new_table()
    hold(table, (span(2, 4), span(8, 12)))
    book = LeaseBook(table.groups[KEY])
    member = joined(book)
    assert take(book, member, 10)[1] == [span(0, 2), span(4, 8)]
    ((_, held),) = table.end_txn(TXN, None)
    for each in held:
        book.let_go(each, 0.0)
    # Below the edge it returns; what lies above comes with what is new.
    assert take(book, member, 10)[1] == [span(2, 4), span(8, 10)]
    assert take(book, member, 20)[1] == [span(10, 20)]


def test_what_lies_above_the_edge_only_comes_as_new() -> None:
    table = new_table()
    hold(table, (span(2, 4),))
    book = LeaseBook(table.groups[KEY])
    ((_, held),) = table.end_txn(TXN, None)
    for each in held:
        book.let_go(each, 0.0)
    assert take(book, joined(book), 10)[1:] == ([span(0, 10)], 1)


def test_a_read_that_found_held_messages_only_puts_the_edge_behind_them() -> None:
    table = new_table()
    hold(table, (span(3, 5),))
    book = LeaseBook(table.groups[KEY])
    portion = book.portion(0.0)
    assert portion is not None
    assert book.nothing_left(portion, TimeTick(9)) == (span(0, 3),)
    assert book.edge == 5
    assert table.end_txn(TXN, TimeTick(2_000)) != []
    assert list(table.groups[KEY].acked) == [span(3, 5)]


def test_what_transactions_hold_counts_for_the_limit_of_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_book, "SPANS_MAX", 4)
    table = new_table()
    book = LeaseBook(table.groups[KEY])
    member = joined(book)
    number, _, _ = take(book, member, 20)
    for at in (1, 3, 5):
        assert book.take_acked(member, number, [span(at, at + 1)]) == (span(at, at + 1),)
        hold(table, (span(at, at + 1),))
    assert book.portion(0.0) is None
    refusal = book.take_acked(member, number, [span(8, 9), span(11, 12)])
    assert isinstance(refusal, Refusal)
    assert "3 acknowledged ranges" in refusal.cause


def test_what_is_held_after_all_though_its_answer_was_lost_is_nobody_elses() -> None:
    """The member was told that the outcome is unknown, and the lease is back in the book."""
    table = new_table()
    book = LeaseBook(table.groups[KEY])
    member = joined(book)
    first, _, times = take(book, member, 10)
    taken = book.take_acked(member, first, ())
    assert not isinstance(taken, Refusal)
    book.ack_failed(member, first, taken, 0.0, times)
    hold(table, (span(0, 4),))
    number, left, _ = take(book, member, 6)
    assert left == [span(4, 6)]
    hold(table, (span(7, 8),), TxnId(78))
    ((_, held),) = table.end_txn(TXN, None)
    for each in held:
        book.let_go(each, 0.0)
        # As if the record of the acknowledgement had come before the lease.
        book.let_go(HeldAck(TXN, (span(4, 9),), 1, TimeTick(1)), 0.0)
    assert take(book, member, 10)[1] == [span(6, 7), span(8, 10)]
    assert take(book, member, 4)[1] == [span(0, 4)]
    assert book.take_acked(member, number, ()) == (span(4, 6),)


def test_what_was_acknowledged_after_all_does_not_come_again() -> None:
    table = new_table()
    book = LeaseBook(table.groups[KEY])
    member = joined(book)
    number, _, _ = take(book, member, 10)
    assert book.give_back(member, number, (), 0.0) is None
    book.state.acknowledge([span(0, 2), span(5, 7)])
    assert take(book, member, 10)[1] == [span(2, 5), span(7, 10)]


@dataclass
class Run:
    """Every tick is a message. `has`: who has which, by the number of the lease."""

    rng: random.Random
    table: GroupTable = field(default_factory=new_table)
    end: int = 1
    tick: int = 1_000
    acked: set[int] = field(default_factory=set)
    has: dict[int, set[int]] = field(default_factory=dict)
    held: dict[int, set[int]] = field(default_factory=dict)
    read_to: int = 0
    """Where the Group reads on: it reads nothing twice but what returns."""

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.book = LeaseBook(self.table.groups[KEY])
        self.member = joined(self.book)
        self.has, self.read_to = {}, self.book.edge
        self.lost: list[tuple[int, tuple[TickSpan, ...]]] = []
        """Acknowledgements that are stored, and whose leases do not know it."""

    def take(self) -> bool:
        portion = self.book.portion(0.0)
        if portion is None:
            return False
        returned = portion.returned is not None
        last = portion.returned.spans.end if portion.returned else TimeTick(self.end)
        after = portion.after if returned else max(self.read_to, portion.after)
        if after >= last:
            self.book.put_back(portion)
            return False
        if self.rng.random() < 0.3:
            # While the Group reads, answers come and transactions end.
            self.fail()
            self.end_txn(commits=self.rng.random() < 0.5)
        reached = TimeTick(self.rng.randint(after + 1, last))
        wanted = self.book.wanted(portion, reached)
        found = {it for each in wanted for it in range(each.after + 1, each.upto + 1)}
        read = {it for it in found if it > after}
        if not returned:
            self.read_to = reached
        if not read:
            for each in self.book.nothing_left(portion, reached):
                self.ack_now((each,))
            return True
        assert found == read, "skipped for ever"
        busy = {it for each in [*self.has.values(), *self.held.values()] for it in each}
        assert not found & (busy | self.acked)
        number = self.book.lease(self.member, portion, reached, 0.0).number
        self.has[number] = found
        return True

    def ack_now(self, spans: tuple[TickSpan, ...]) -> None:
        assert not spans, "every tick is a message"

    def ack(self) -> None:
        if not self.has:
            return
        number = self.rng.choice(list(self.has))
        some = self.rng.choice([None, *self.has[number]])
        spans = [] if some is None else [span(some - 1, some)]
        taken = self.book.take_acked(self.member, number, spans)
        assert not isinstance(taken, Refusal)
        ticks = ticks_of(taken)
        self.has[number] -= ticks
        if not self.has[number]:
            del self.has[number]
        if not self.table.groups[KEY].has_free(taken):
            self.book.ack_failed(self.member, number, taken, 0.0, 1)  # refused by the writer
            return
        if self.rng.random() < 0.3:
            self.lost.append((number, taken))
        txn = self.rng.randrange(1, 4)
        hold(self.table, taken, TxnId(txn))
        self.held.setdefault(txn, set()).update(ticks)

    def fail(self) -> None:
        """The answer of a write is lost: the Group takes it as not stored."""
        if self.lost:
            number, taken = self.lost.pop(self.rng.randrange(len(self.lost)))
            self.book.ack_failed(self.member, number, taken, 0.0, 1)

    def look(self) -> None:
        """Whatever is known of leases; each message is in one place at the most."""
        leases = self.book._leases
        self.has = {number: ticks_of(tuple(it.left)) for number, it in leases.items()}
        places = [*self.has.values(), *(ticks_of(tuple(it.spans)) for it in self.book._returned)]
        assert sum(map(len, places)) == len(set().union(*places))

    def end_txn(self, *, commits: bool) -> None:
        if not self.held:
            return
        txn = self.rng.choice(list(self.held))
        ticks = self.held.pop(txn)
        self.tick += 1
        found = self.table.end_txn(TxnId(txn), TimeTick(self.tick) if commits else None)
        if commits:
            self.acked |= ticks
            return
        for _, held in found:
            for each in held:
                self.book.let_go(each, 0.0)

    def step(self) -> None:
        choice = self.rng.random()
        if choice < 0.2:
            self.end += self.rng.randrange(1, 4)
        elif choice < 0.5:
            self.take()
        elif choice < 0.75:
            self.ack()
        elif choice < 0.8:
            self.fail()
        elif choice < 0.97:
            self.end_txn(commits=choice < 0.88)
        else:
            self.restart()

    def drain(self) -> None:
        while self.lost:
            self.fail()
        while self.held:
            self.end_txn(commits=False)
        self.book.leave(self.member, 0.0)
        self.has, self.member = {}, joined(self.book)
        while self.take():
            pass
        came = {it for each in self.has.values() for it in each}
        assert came | self.acked >= set(range(2, self.end + 1))


@pytest.mark.parametrize("seed", range(300))
def test_whatever_ends_when_each_message_is_leased_held_or_acknowledged(seed: int) -> None:
    run = Run(random.Random(seed))
    for _ in range(150):
        run.step()
        run.look()
    run.drain()


def ticks_of(spans: Sequence[TickSpan]) -> set[int]:
    return {it for each in spans for it in range(each.after + 1, each.upto + 1)}
