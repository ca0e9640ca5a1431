"""What a Group reads before it leases, and what it needs to lease it."""

from dataclasses import dataclass, field

from broker.core.groups.leases import Portion
from broker.core.log.delivery import DeliveredItem
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick
from broker.model.position import ReadPosition
from broker.node.group_messages import AckMessages
from broker.node.groups.ack_writes import AckWrites, TakenAck
from broker.node.groups.counted_deliveries import CountedDeliveries
from broker.node.groups.timely_items import TimelyItems
from broker.node.groups.unread import UnreadPart
from broker.node.groups.waiting_members import WaitingMembers


@dataclass(slots=True)
class PortionReading:
    """A portion that is being read up to `cursor`.

    `items`: what was read of it behind `passed`, or behind its begin.
    """

    portion: Portion
    cursor: ReadPosition
    items: list[DeliveredItem] = field(default_factory=list)
    passed: TimeTick = TimeTick(0)

    @property
    def after(self) -> TimeTick:
        """Behind it all messages of the portion, up to the cursor, are among the items."""
        return max(self.portion.after, self.passed)

    def pass_over(self, upto: TimeTick) -> None:
        """Forget what was read up to there: it is read again when it is wanted."""
        self.items.clear()
        self.passed = upto


@dataclass(frozen=True, slots=True)
class LeaseParts:
    """What leasing has to do with, of one Group."""

    takers: WaitingMembers
    unread: UnreadPart
    timely: TimelyItems
    counted: CountedDeliveries
    acks: AckWrites

    def settle(self, spans: tuple[TickSpan, ...]) -> None:
        """Acknowledge ticks at which no message is left: the floor would stay below them."""
        if spans:
            self.acks.add(TakenAck(None, AckMessages(0, 0, spans), spans, 1))
            self.acks.write()
