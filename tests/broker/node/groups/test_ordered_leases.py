"""What an ordered group leases of what it has read, in several parts, while members come and go."""

from typing import Any, cast

from actors import Envelope
from broker.codec.stored_headers import StoredHeaders
from broker.core.groups.key_lanes import lanes_of
from broker.core.groups.leases import Portion
from broker.core.groups.ordered_book import OrderedBook
from broker.core.log.delivery import DeliveredItem
from broker.model.batch import BatchKeys, BatchPart, Codec
from broker.model.groups.consumer_group import TickSpan
from broker.model.groups.group_mode import GroupMode
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.position import ReadPosition
from broker.model.record import Record, RecordSlice
from broker.node.group_messages import LeasedMessages, TakeMessages
from broker.node.groups.leasing.ordered_leases import OrderedLeases
from broker.node.groups.leasing.portion_reading import LeaseParts, PortionReading
from broker.node.groups.timely_items import TimelyItems
from broker.node.groups.waiting_members import WaitingMembers
from tests.broker.core.groups.ordered_parts import KEY, ordered_table

NOW_S = 100.0


class Waits:
    """Stands for the envelope of a member."""

    def wanted(self) -> bool:
        return True

    def reply(self, _: object) -> None:
        pass


class Given:
    """Instead of what counts deliveries, writes acknowledgements and follows the tail."""

    def __init__(self) -> None:
        self.leased: list[LeasedMessages] = []
        self.acked: list[TickSpan] = []
        self.at: object = None

    def give(self, _: object, __: object, messages: LeasedMessages) -> None:
        self.leased.append(messages)

    def add(self, taken: Any) -> None:
        self.acked += taken.spans

    def write(self) -> None:
        pass

    def reached(self, _: object, *, found: bool) -> None:
        pass

    def ticks(self) -> list[int]:
        return [
            tick
            for messages in self.leased
            for item in messages.items
            if isinstance(item, RecordSlice)
            for tick in range(item.first_tick, item.last_tick + 1)
        ]


class World:
    """A group by key with two members, and a message at each of the ticks 10 and 20."""

    def __init__(self) -> None:
        self.book = OrderedBook(ordered_table(GroupMode.BY_KEY).groups[KEY])
        self.given = Given()
        self.takers = WaitingMembers(self.book.is_member)
        part = cast("Any", self.given)
        timely = TimelyItems(StoredHeaders(), lambda: TimeTick(1000))
        self.leases = OrderedLeases(self.book, LeaseParts(self.takers, part, timely, part, part))
        members = [self.book.join(name) for name in ("ann", "bob")]
        assert all(isinstance(it, int) for it in members)
        self.first, self.second = cast("list[int]", members)
        self.book.owners.look(NOW_S)
        self.keys = [self.key_of(self.first), self.key_of(self.second)]
        lanes = [lanes_of([key]) for key in self.keys]
        begin = self.book.edge
        positions = [(TimeTick(tick), it) for tick, it in zip((10, 20), lanes, strict=True)]
        assert self.book.learn(positions, Portion(begin), TimeTick(20))

    def key_of(self, member: int) -> bytes:
        keys = (b"key %d" % number for number in range(10_000))
        return next(it for it in keys if self.book.owners.owner(lanes_of([it])[0]) == member)

    def wait(self, member: int) -> None:
        envelope = cast("Envelope[Any]", Waits())
        self.takers.add(envelope, TakeMessages(member, 1 << 20), NOW_S)

    def reading(self) -> PortionReading:
        """Of what the group wants next."""
        portion = self.leases.portion(NOW_S, new_first=False)
        assert portion is not None
        return PortionReading(portion, ReadPosition(MessageId(1)))

    def read(self, reading: PortionReading, tick: int) -> bool:
        """A part of the portion has been read: the message at this tick."""
        key = self.keys[tick // 10 - 1]
        batch = BatchPart(b"", Codec.NONE, BatchKeys((len(key),), key))
        ids = MessageId(tick), TimeTick(tick), MessageId(tick)
        record = Record(Term(1), *ids, 2, KEY.vchannel, (1,), b"x", batch=batch)
        item: DeliveredItem = RecordSlice(record, 0, 1)
        reading.items.append(item)
        reading.cursor = ReadPosition(MessageId(tick + 1), tick=TimeTick(tick))
        return self.leases.lease(reading, NOW_S)


def test_what_was_passed_over_for_want_of_its_member_is_not_taken_for_gone() -> None:
    world = World()
    world.wait(world.first)
    world.wait(world.second)
    reading = world.reading()
    world.takers.pop_member(world.first)  # it was told that there is nothing, and asks again
    assert not world.read(reading, 10)
    world.wait(world.first)
    assert world.read(reading, 20)
    assert world.given.acked == []
    assert world.given.ticks() == [20]
    assert world.read(world.reading(), 10)
    assert world.given.ticks() == [20, 10]
    assert world.given.acked == []


def test_what_is_not_in_the_log_any_more_is_settled() -> None:
    world = World()
    world.wait(world.first)
    world.wait(world.second)
    assert world.read(world.reading(), 20)
    assert world.given.ticks() == [20]
    assert [it.upto for it in world.given.acked] == [10]


def test_empty_ticks_that_no_message_holds_any_more_are_settled() -> None:
    world = World()
    world.book.state.acknowledge([TickSpan(TimeTick(8), TimeTick(10))])  # by an earlier life
    world.wait(world.first)
    assert world.leases.portion(NOW_S, new_first=False) is not None
    world.leases.tell(NOW_S)
    assert world.given.acked == [TickSpan(TimeTick(0), TimeTick(8))]
