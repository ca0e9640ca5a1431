"""Where a group reads on: never behind a message that it was not told of."""

from typing import Any, cast

from actors import Ref
from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import ClosedTick
from broker.model.position import ReadPosition
from broker.model.record import Record
from broker.node.group_messages import MessagesCame
from broker.node.groups.unread import PASS_S, UnreadPart
from broker.node.state.node_limits import NodeLimits
from broker.node.state.tail import Tail, TailMemory

AT_END = ReadPosition(MessageId(5), TimeTick(4), MessageId(5))


class Told:
    """A mailbox that nobody reads."""

    def __init__(self) -> None:
        self.messages: list[MessagesCame] = []

    def tell(self, message: MessagesCame) -> None:
        self.messages.append(message)


def closed(tick: int) -> ClosedTick:
    return ClosedTick(TimeTick(tick), MessageId(tick), MessageId(tick), Term(1), False)


def came(tail: Tail, base_id: int, vchannel: str) -> None:
    tick, last = TimeTick(base_id), MessageId(base_id)
    record = Record(Term(1), last, tick, last, 2, vchannel, (1,), b"x")
    tail.push([record], closed(base_id), 0.0)


def waiting() -> tuple[Tail, Told, UnreadPart]:
    """At the end of the log, and listening since 0 s."""
    tail, told = Tail(MessageId(5), closed(4), NodeLimits(), TailMemory(10_000)), Told()
    part = UnreadPart(tail, "v", cast("Ref[Any]", told))
    part.reached(AT_END, found=False)
    assert part.waits(0.0)
    return tail, told, part


def test_it_passes_what_came_for_others_after_a_while() -> None:
    tail, told, part = waiting()
    came(tail, 5, "other")
    assert part.waits(PASS_S - 1)
    assert not part.waits(PASS_S)
    assert (part.at, told.messages) == (ReadPosition(MessageId(6), TimeTick(4), MessageId(6)), [])


def test_it_never_passes_a_message_whose_news_it_has_not_read_yet() -> None:
    tail, told, part = waiting()
    came(tail, 5, "v")
    assert not part.waits(PASS_S)
    assert part.at == AT_END
    part.came(told.messages[0].from_id)
    assert part.at == AT_END
    assert not part.waits(PASS_S), "it reads"
