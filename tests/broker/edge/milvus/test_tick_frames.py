"""A tick is encoded once for everybody who hears of it."""

from broker.edge.milvus.tick_frames import TickFrames
from broker.model.ids import MessageId, NodeId, PChannelName, Term, TimeTick
from broker.model.message import ClosedTick
from schemas.encoding.frames import FrameSplitter
from schemas.wire import Consumed, scan_consume_response

ONE, TWO = PChannelName("p_0"), PChannelName("p_1")


def tick(number: int, persisted: bool = False) -> ClosedTick:
    return ClosedTick(TimeTick(number), MessageId(7), MessageId(7), Term(2), persisted)


def test_equal_ticks_of_a_channel_share_the_same_bytes() -> None:
    frames = TickFrames(NodeId(1))
    first = frames.framed(ONE, tick(10))
    assert frames.framed(ONE, tick(10)) is first
    assert frames.framed(ONE, tick(11)) != first
    assert frames.framed(ONE, tick(10, persisted=True)) != first


def test_channels_do_not_disturb_each_other() -> None:
    frames = TickFrames(NodeId(1))
    first = frames.framed(ONE, tick(10))
    frames.framed(TWO, tick(99))
    assert frames.framed(ONE, tick(10)) is first


def test_the_bytes_are_a_framed_consume_response() -> None:
    framed = TickFrames(NodeId(1)).framed(ONE, tick(10))
    (message,) = FrameSplitter(1000).feed(framed)
    found = scan_consume_response(message)
    assert isinstance(found, Consumed)
    assert (found.tick, found.message_id, "_np" in found.properties) == (10, 7, True)
