"""Where a bounded read ends: by id, by a time tick, and by the tick of a message."""

from broker.client.read.decoder import Decoder, End, MessageFilter
from broker.client.read.vchannel_progress import VChannelProgress
from broker.model.ids import MessageId, PChannelName, TimeTick, VChannelName
from broker.model.position import FromAll
from schemas.properties.broadcast_header import BroadcastHeader, write_broadcast_header
from schemas.wire import (
    consume_message,
    consume_time_tick,
    message,
    produce_request,
    scan_produce_request,
)

V0 = "by-dev-rootcoord-dml_0_7v0"
END = End(MessageId(10), TimeTick(100))


def frame(id: int, tick: int, **properties: str) -> bytes:
    """A message as the broker delivers it."""
    sent = message(b"x", {"_t": "2", "_v": "1", "_vc": V0} | properties)
    scanned = scan_produce_request(produce_request(1, sent))
    return consume_message(id, tick, id, 1, scanned.message.stored)  # type: ignore[union-attr]


def time_tick(id: int, tick: int) -> bytes:
    return consume_time_tick(id, tick, id, 1, False, 1)


def read(*frames: bytes, types: frozenset[int] | None = None) -> tuple[list[int], bool]:
    """The ids delivered, and whether the read is done."""
    pchannel = PChannelName(V0.rpartition("_")[0])
    wanted = MessageFilter(pchannel, VChannelName(V0), types=types, end=END)
    decoder = Decoder(wanted, VChannelProgress(FromAll()))
    ids: list[int] = []
    for each in frames:
        batch = decoder.feed([each])
        ids += [it.id for it in batch.messages] if batch else []
        if decoder.done:
            break
    return ids, decoder.done


def test_what_the_log_itself_writes_is_read_by_those_who_name_its_type() -> None:
    frames = frame(1, 10, _t="10"), frame(2, 20), frame(3, 30, _t="4"), frame(4, 40, _t="5")
    assert read(*frames) == ([2, 4], False)
    assert read(*frames, types=frozenset({2, 4, 10})) == ([1, 2, 3, 4], False)


def test_a_read_ends_before_its_end_id() -> None:
    assert read(frame(8, 80), frame(9, 100), frame(10, 101)) == ([8, 9], True)


def test_a_read_ends_at_its_tick_when_nothing_follows() -> None:
    assert read(frame(8, 80), time_tick(8, 99)) == ([8], False)
    assert read(frame(8, 80), time_tick(8, 100)) == ([8], True)
    assert read(frame(8, 80), time_tick(8, 120)) == ([8], True)


def test_a_transaction_that_was_open_at_a_cut_is_not_inside_it() -> None:
    """Its messages have ids before the end and, once committed, the tick of the commit."""
    assert read(frame(8, 80), frame(7, 130, _tx="x"), frame(9, 130, _tx="x")) == ([8], True)
    inside = [frame(6, 90, _tx="x"), frame(8, 90, _tx="x"), frame(9, 90, _tx="x", _t="901")]
    assert read(*inside, time_tick(9, 100)) == ([6, 8], True)


def test_a_transaction_is_delivered_whole_and_only_with_its_commit() -> None:
    half = [frame(6, 90, _tx="x", _t="900"), frame(7, 90, _tx="x")]
    again = [*half, frame(8, 90, _tx="x"), frame(9, 90, _tx="x", _t="901"), time_tick(9, 100)]
    assert read(*half) == ([], False)
    assert read(*half, *again) == ([7, 8], True)
    assert read(*half, frame(10, 90, _tx="x", _t="901")) == ([], True)


def copy(id: int, broadcast_id: int, vchannel: str = V0) -> bytes:
    header = write_broadcast_header(BroadcastHeader(broadcast_id, (vchannel,)))
    return frame(id, id * 10, _bh=header, _vc=vchannel)


def test_a_repeated_copy_of_a_broadcast_is_dropped() -> None:
    """The coordinator died after it had appended the first one."""
    other = V0.replace("7v0", "8v0")
    frames = [copy(1, 5), copy(2, 6), copy(3, 5), copy(4, 5, other), copy(5, 6)]
    assert read(*frames, time_tick(5, 100)) == ([1, 2, 4], True)


def test_a_copy_says_which_broadcast_it_belongs_to() -> None:
    wanted = MessageFilter(PChannelName(V0.rpartition("_")[0]), VChannelName(V0))
    batch = Decoder(wanted, VChannelProgress(FromAll())).feed([copy(1, 5), frame(2, 20)])
    assert batch is not None
    assert [it.broadcast_id for it in batch.messages] == [5, None]
