"""Ticks of idle readers: encoded once, and right for each."""

from broker.edge.rpc.read_ticks import ReadTicks
from broker.model.ids import MessageId, TimeTick
from broker.model.position import ReadPosition
from schemas.batches import Position, scan_read_response
from schemas.encoding.frames import FrameSplitter


def test_readers_at_one_position_get_the_same_bytes_and_others_their_own() -> None:
    ticks = ReadTicks()
    first = ReadPosition(MessageId(7), TimeTick(100), MessageId(5), 2)
    framed = ticks.framed(100, first)
    assert ticks.framed(100, ReadPosition(MessageId(7), TimeTick(100), MessageId(5), 2)) is framed
    others = (
        (100, ReadPosition(MessageId(8), TimeTick(100), MessageId(5), 2)),
        (100, ReadPosition(MessageId(8), TimeTick(101), MessageId(5), 2)),
        (101, ReadPosition(MessageId(8), TimeTick(101), MessageId(5), 2)),
        (101, ReadPosition(MessageId(8), TimeTick(101), MessageId(6), 2)),
        (101, ReadPosition(MessageId(8), TimeTick(101), MessageId(6), 0)),
        (101, ReadPosition(MessageId(8), TimeTick(101), None, 0)),
        (100, first),
    )
    for closed_tick, at in others:
        (message,) = FrameSplitter(1000).feed(ticks.framed(closed_tick, at))
        answer = scan_read_response(message)
        assert answer.batch is None
        assert answer.closed_tick == closed_tick
        assert answer.position == Position(at.next_id, at.tick, at.open_id or 0, at.inside)
