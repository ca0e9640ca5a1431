"""Frames of data that h2 does not see: all is as if it had."""

import tracemalloc
from collections.abc import Sequence
from itertools import pairwise

import pytest
from h2.connection import H2Connection
from h2.exceptions import FrameTooLargeError
from hyperframe.frame import (
    DataFrame,
    ExtensionFrame,
    Frame,
    PingFrame,
    RstStreamFrame,
    WindowUpdateFrame,
)
from hypothesis import example, given
from hypothesis import strategies as st

from broker.transport import whole_frames
from broker.transport.data_frames import processed, take_data
from broker.transport.whole_frames import WholeFrames
from tests.broker.transport.sides import COUNTED, KNOWN, NEW, Side, plain

HALF_A_HEADER_BLOCK = b"\0\0\0\x01\0\0\0\0\x07"
OVERLONG = b"\xff\xff\xff\0\0\0\0\0\x01"
OF_NO_STREAM = b"\0\0\x03\0\0\0\0\0\0abc"


def data_frames() -> st.SearchStrategy[bytes]:
    def made(stream_id: int, size: int, flags: frozenset[str], reserved: bool) -> bytes:
        frame = DataFrame(stream_id, b"d" * size, flags=flags)
        frame.pad_length = 9 if "PADDED" in flags else 0
        raw = bytearray(frame.serialize())
        raw[5] |= 0x80 if reserved else 0
        return bytes(raw)

    numbers = st.sampled_from([KNOWN] * 6 + [COUNTED, COUNTED + 2, NEW])
    sizes = st.one_of(st.integers(0, 300), st.sampled_from([16_384, 16_385, 10_000]))
    flags = st.sampled_from([[]] * 8 + [["END_STREAM"], ["PADDED"], ["END_STREAM", "PADDED"]])
    return st.builds(
        made, numbers, sizes, flags.map(frozenset), st.sampled_from([False] * 9 + [True])
    )


def other_frames() -> st.SearchStrategy[bytes]:
    ping = PingFrame(0, b"12345678")
    update = WindowUpdateFrame(KNOWN, 1000)
    reset = RstStreamFrame(KNOWN, 8)
    unknown = ExtensionFrame(type=0x42, stream_id=KNOWN, flag_byte=0, body=b"?")
    frames: Sequence[Frame] = [ping, update, reset, unknown, ping, ping]
    whole = [frame.serialize() for frame in frames]
    return st.sampled_from([*whole, HALF_A_HEADER_BLOCK, OVERLONG, OF_NO_STREAM])


@given(
    client=st.booleans(),
    frames=st.lists(
        st.one_of(data_frames(), data_frames(), data_frames(), other_frames()), max_size=12
    ),
    cuts=st.lists(st.integers(0, 40_000), max_size=6),
)
@example(client=False, frames=[plain(KNOWN, 16_384)] * 4, cuts=[])
@example(
    client=False, frames=[plain(KNOWN, 100), plain(COUNTED, 16_384), plain(COUNTED, 9_000)], cuts=[]
)
@example(client=True, frames=[plain(KNOWN, 100), plain(COUNTED + 2, 5)], cuts=[50])
def test_whatever_a_peer_sends_it_is_taken_as_h2_takes_it(
    client: bool, frames: list[bytes], cuts: list[int]
) -> None:
    ours, theirs = Side(ours=True, client=client), Side(ours=False, client=client)
    wire = b"".join(frames)
    edges = sorted({0, len(wire), *[cut for cut in cuts if cut < len(wire)]})
    for start, stop in pairwise(edges):
        for side in (ours, theirs):
            side.receive(wire[start:stop])
        assert ours.failure is theirs.failure
        if theirs.failure is None:
            assert ours.came() == theirs.came()
            assert ours.state() == theirs.state()
        else:  # what came before the fault in the same piece: h2 drops it, here it has been given
            assert ours.h2._data_to_send == theirs.h2._data_to_send
            for number, (data, owed_bytes) in theirs.came().items():
                assert ours.came()[number][0].startswith(data)
                assert ours.came()[number][1] >= owed_bytes


def test_plain_data_does_not_get_to_h2() -> None:
    side = Side(ours=True, client=False)
    both = plain(KNOWN, 1000) + plain(COUNTED + 2, 50)
    streams = side._processor.streams
    assert take_data(side.h2, streams, both + plain(KNOWN, 7)[:-1]) == len(both)
    assert side.came()[KNOWN] == (plain(KNOWN, 1000)[9:], 1000)
    assert side.came()[COUNTED + 2] == (bytes(50), 50)


@pytest.mark.parametrize("ended", ["by both", "by us", "by reset", "by goodbye", "unknown to us"])
def test_a_stream_that_gets_no_data_any_more_is_left_to_h2(ended: str) -> None:
    side = Side(ours=True, client=False)
    taken = 0
    match ended:
        case "by both":
            side.receive(DataFrame(KNOWN, b"", flags=["END_STREAM"]).serialize())
            side.h2.end_stream(KNOWN)
        case "by us":
            side.h2.end_stream(KNOWN)
            taken = len(plain(KNOWN, 10))  # half-closed: the peer may go on
        case "by reset":
            side.h2.reset_stream(KNOWN)
        case "by goodbye":
            side.h2.close_connection()
        case _:
            del side._processor.streams[KNOWN]
    assert take_data(side.h2, side._processor.streams, plain(KNOWN, 10)) == taken


def test_while_h2_has_half_a_frame_all_goes_to_h2() -> None:
    side = Side(ours=True, client=False)
    frame = plain(KNOWN, 100)
    side._to_h2(frame[:40])
    assert take_data(side.h2, side._processor.streams, frame) == 0
    side._to_h2(frame[40:])
    assert take_data(side.h2, side._processor.streams, frame) == len(frame)


@given(st.lists(st.integers(1, 900), max_size=20))
def test_of_many_small_frames_h2_gets_only_those_that_hold_no_data(reads: list[int]) -> None:
    side = Side(ours=True, client=False)
    before = side.h2_bytes
    ping = PingFrame(0, b"12345678").serialize()
    update = WindowUpdateFrame(KNOWN, 10).serialize()
    wire = (plain(KNOWN, 50) * 9 + ping + update + plain(KNOWN, 60) * 9 + ping) * 5
    at = 0
    for size in [*reads, len(wire)]:
        side.receive(wire[at : at + size])
        at += size
    assert side.h2_bytes - before == 5 * (2 * len(ping) + len(update))
    assert side.pings == 10
    data, owed_bytes = side.came()[KNOWN]
    assert len(data) == owed_bytes == 5 * 9 * 110


def test_a_frame_that_comes_two_bytes_at_a_time_takes_no_more_than_its_size() -> None:
    size = 256 * 1024
    h2 = Side(ours=True, client=False).h2
    frames = WholeFrames(h2, {}, lambda _: True, size)
    frame = plain(KNOWN, size)
    tracemalloc.start()
    try:
        for at in range(0, len(frame) - 1, 2):
            frames.receive(frame[at : at + 2])
        # Of this module alone: threads of other tests may allocate meanwhile.
        here = tracemalloc.Filter(inclusive=True, filename_pattern=whole_frames.__file__)
        snapshot = tracemalloc.take_snapshot().filter_traces([here])
    finally:
        tracemalloc.stop()
    kept_bytes = sum(trace.size for trace in snapshot.traces)
    assert frames.unfinished
    assert size <= kept_bytes < 1.5 * size


@pytest.mark.parametrize("fill", [b"\0\0\0", b"\0\3\xff", b"\xff\xff\xff", b"a\1\2"])
def test_an_oversize_frame_fails_as_in_h2_whatever_its_payload_looks_like(fill: bytes) -> None:
    size = 30_000
    head = size.to_bytes(3) + b"\0\0" + KNOWN.to_bytes(4)
    wire = head + fill * (size // len(fill)) + plain(KNOWN, 100)
    for client in (True, False):
        ours, theirs = Side(ours=True, client=client), Side(ours=False, client=client)
        for at in range(0, len(wire), 7_000):
            for side in (ours, theirs):
                side.receive(wire[at : at + 7_000])
            assert ours.failure is theirs.failure
            assert ours.state() == theirs.state()
            assert not ours._frames.unfinished
        assert ours.failure is FrameTooLargeError


STREAM_WINDOW_BYTES = 65_535


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([KNOWN, COUNTED + 2]), st.integers(1, 16_384)), max_size=16
    ),
    left=st.lists(st.integers(0, 40_000), max_size=16),
)
@example(steps=[(KNOWN, 16_384)] * 3 + [(KNOWN, 16_383)], left=[65_535, 65_535, 65_535, 64_511])
@example(steps=[(KNOWN, 16_384)] * 3 + [(KNOWN, 16_383)], left=[65_535, 65_535, 65_535, 64_510])
@example(steps=[(KNOWN, 16_384)] * 2, left=[32_768, 1, 0])
@example(steps=[(KNOWN, 16_384)] * 2, left=[32_768, 2, 1, 0])
def test_what_is_done_with_opens_windows_when_h2_would(
    steps: list[tuple[int, int]], left: list[int]
) -> None:
    """`left`: how many bytes of the last stream wait on, after each step."""
    ours, theirs = Side(ours=True, client=False), Side(ours=False, client=False)
    waiting: dict[int, int] = dict.fromkeys((KNOWN, COUNTED + 2), 0)
    for at, (number, size) in enumerate(steps):
        window = theirs.h2.remote_flow_control_window(number)
        if size <= window:
            ours.receive(plain(number, size))
            theirs.receive(plain(number, size))
            waiting[number] += size
        done = waiting[number] - min(waiting[number], *left[at : at + 1], STREAM_WINDOW_BYTES)
        if done:
            waiting[number] -= done
            theirs.h2.acknowledge_received_data(done, number)
            if not processed(ours.h2, number, done):
                ours.h2.acknowledge_received_data(done, number)
        assert ours.state() == theirs.state()
        assert windows_counted(ours.h2) == windows_counted(theirs.h2)


def windows_counted(h2: H2Connection) -> int:
    return h2._inbound_flow_control_window_manager._bytes_processed


def test_h2_is_told_of_what_came_to_a_stream_that_is_gone() -> None:
    assert not processed(Side(ours=True, client=False).h2, NEW, 100)
