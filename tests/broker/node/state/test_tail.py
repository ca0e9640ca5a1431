"""The memory of all tails of a node together."""

from broker.model.ids import MessageId, Term, TimeTick
from broker.model.message import ClosedTick
from broker.model.record import Record
from broker.node.state.node_limits import NodeLimits
from broker.node.state.tail import Tail, TailMemory


def record(base_id: int, size: int, vchannel: str = "v") -> Record:
    tick = TimeTick(base_id)
    return Record(
        Term(1), MessageId(base_id), tick, MessageId(base_id), 2, vchannel, (size,), bytes(size)
    )


def closed(tick: int) -> ClosedTick:
    return ClosedTick(TimeTick(tick), MessageId(tick), MessageId(tick), Term(1), False)


def test_the_largest_tail_evicts_when_the_node_holds_too_much() -> None:
    memory = TailMemory(10_000)
    limits = NodeLimits(tail_bytes_max=100_000)
    large, small = (Tail(MessageId(1), closed(1), limits, memory) for _ in range(2))
    for number in range(1, 9):
        large.push([record(number, 1_000)], closed(number), 0.0)
    small.push([record(1, 100)], closed(1), 0.0)
    small.push([record(2, 100)], closed(2), 0.0)
    assert memory.size_bytes <= 10_000
    assert small.read(MessageId(1)) is not None
    assert large.read(MessageId(1)) is None
    large.push([record(9, 50_000)], closed(9), 0.0)
    assert large.read(MessageId(9)) is not None, "the newest group stays, whatever it takes"
    assert small.read(MessageId(1)) is None, "and then the others make room"
    assert small.read(MessageId(2)) is not None
    large.release()
    large.release()
    assert memory.size_bytes == small.size_bytes
