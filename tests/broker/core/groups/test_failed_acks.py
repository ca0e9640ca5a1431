"""Acknowledgements of an ordered group that fail while earlier messages of the key come again."""

from broker.core.groups.group_changes import AckedInTxn
from broker.core.groups.group_state import HeldAck
from broker.core.groups.group_table import GroupTable
from broker.core.groups.leases import Lease
from broker.core.groups.ordered_book import OrderedBook
from broker.model.failure import Refusal, StreamingCode
from broker.model.groups.consumer_group import TickSpan
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import TimeTick, TxnId
from tests.broker.core.groups.ordered_parts import KEY, ordered_table, span
from tests.broker.core.groups.test_ordered_rules import A, B, learn, lease, ready, refused

TXN = TxnId(7)


class World:
    """Two messages of a key and one of another, on one lease. A transaction holds the first."""

    def __init__(self) -> None:
        self.table: GroupTable = ordered_table(GroupMode.BY_KEY)
        self.book = OrderedBook(self.table.groups[KEY])
        member = self.book.join("ann")
        assert isinstance(member, int)
        self.ann = member
        learn(self.book, (A,), (A,), (B,))
        self.lease = lease(self.book, member)
        self.hold(self.take(self.lease, 0, 1))

    def take(self, lease: Lease, after: int, upto: int) -> tuple[TickSpan, ...]:
        taken = self.book.take_acked(self.ann, lease.number, [span(after, upto)], TXN)
        assert not isinstance(taken, Refusal)
        return taken

    def hold(self, spans: tuple[TickSpan, ...]) -> None:
        self.table.hold(KEY.vchannel, AckedInTxn("g", TXN, spans, 1), TimeTick(50))

    def roll_back(self) -> HeldAck:
        ((_, (held,)),) = self.table.end_txn(TXN, None)
        self.book.let_go(held, 1.0)
        return held

    def fail(self, lease: Lease, spans: tuple[TickSpan, ...]) -> None:
        self.book.ack_failed(self.ann, lease.number, spans, 1.0, lease.times)


def test_an_acknowledgement_that_its_rollback_overtakes_leaves_the_key_in_one_place() -> None:
    world = World()
    second = world.take(world.lease, 1, 2)  # on its way
    world.roll_back()
    world.fail(world.lease, second)
    code = refused(world.book.take_acked(world.ann, world.lease.number, second))
    assert code == StreamingCode.INVALID_REQUEST_SEQ
    assert list(world.lease.left) == [span(2, 3)]
    again = lease(world.book, world.ann, 1.0)
    assert (list(again.left), again.times) == ([span(0, 1)], 2)
    world.book.state.acknowledge([span(0, 1)])
    world.book.expire(100.0)
    last = lease(world.book, world.ann, 100.0)
    assert (list(last.left), last.times) == ([span(1, 2)], 1), "that counts as not delivered"


def test_one_that_fails_while_the_first_is_acknowledged_anew_stays_behind_it() -> None:
    world = World()
    second = world.take(world.lease, 1, 2)
    world.roll_back()
    again = lease(world.book, world.ann, 1.0)
    first = world.take(again, 0, 1)
    world.fail(world.lease, second)
    assert ready(world.book, world.ann, 1.0) == []
    assert list(world.lease.left) == [span(1, 3)], "nothing before it is anywhere else"
    # The lease of the first is over, so it comes again, and before the second.
    world.fail(again, first)
    assert [it.tick for it in ready(world.book, world.ann, 1.0)] == [1]
    assert list(world.lease.left) == [span(2, 3)]


def test_one_that_was_let_go_before_it_failed_stays_where_it_is_now() -> None:
    world = World()
    world.roll_back()
    again = lease(world.book, world.ann, 1.0)
    world.fail(world.lease, (span(0, 1),))  # its answer was lost
    assert (list(world.lease.left), list(again.left)) == ([span(2, 3)], [span(0, 1)])
    assert world.take(again, 0, 1) == (span(0, 1),)


def test_one_that_is_acknowledged_after_all_is_on_no_lease_again() -> None:
    world = World()
    second = world.take(world.lease, 1, 2)
    world.book.state.acknowledge([span(1, 2)])
    assert ready(world.book, world.ann) == []
    world.fail(world.lease, second)
    assert list(world.lease.left) == [span(2, 3)]
