"""Frames of data that h2 does not see: all is as if it had."""

import tracemalloc
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from grpclib.config import Configuration
from grpclib.protocol import AbstractHandler, Connection, EventsProcessor, Stream
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import PingReceived
from h2.exceptions import FrameTooLargeError, ProtocolError
from hyperframe.frame import (
    DataFrame,
    ExtensionFrame,
    Frame,
    PingFrame,
    RstStreamFrame,
    WindowUpdateFrame,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.transport import whole_frames
from broker.transport.data_frames import processed, take_data
from broker.transport.whole_frames import PART_BYTES_MIN, WholeFrames

KNOWN, COUNTED, NEW, RESERVED_BIT = 1, 3, 9, 1 << 31
"""Streams: plain ones, one whose length was announced, one that nobody opened."""
ANNOUNCED_BYTES = 20_000
REQUEST = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "here")]
RESPONSE = [(":status", "200")]

HALF_A_HEADER_BLOCK = b"\0\0\0\x01\0\0\0\0\x07"
OVERLONG = b"\xff\xff\xff\0\0\0\0\0\x01"
OF_NO_STREAM = b"\0\0\x03\0\0\0\0\0\0abc"


class Accepting(AbstractHandler):
    """Takes every call and reads nothing."""

    def accept(
        self, stream: Stream, headers: object, release_stream: Callable[[], None]
    ) -> None: ...

    def cancel(self, stream: Stream) -> None: ...

    def close(self) -> None: ...


class Side:
    """One end of a connection, and what came to its streams."""

    def __init__(self, *, ours: bool, client: bool, frame_bytes_max: int = 16_384) -> None:
        self._ours = ours
        self.h2 = H2Connection(H2Configuration(client_side=client, header_encoding="ascii"))
        self._peer = H2Connection(H2Configuration(client_side=not client))
        connection = Connection(self.h2, cast(Any, self), config=Configuration())
        self._processor = EventsProcessor(Accepting(), connection)
        self._all: dict[int, Stream] = {}
        self.failure: type[Exception] | None = None
        self.h2_bytes = 0
        self._frames = WholeFrames(self.h2, self._processor.streams, self._to_h2, frame_bytes_max)
        self.pings = 0
        for each in (self.h2, self._peer):
            each.initiate_connection()
        self._open(client=client)
        self.h2.max_inbound_frame_size = frame_bytes_max
        self.h2.incoming_buffer.max_frame_size = frame_bytes_max

    def _open(self, *, client: bool) -> None:
        announced = [("content-length", str(ANNOUNCED_BYTES))]
        caller, answerer = (self.h2, self._peer) if client else (self._peer, self.h2)
        for number in (KNOWN, COUNTED, COUNTED + 2):
            caller.send_headers(number, REQUEST + (announced if number == COUNTED else []))
        for _ in range(2):
            self.receive(self._peer.data_to_send())
            self._peer.receive_data(self.h2.data_to_send())
        answerer.send_headers(KNOWN, RESPONSE)
        answerer.send_headers(COUNTED, RESPONSE + announced)
        if client:
            for number in (KNOWN, COUNTED, COUNTED + 2):
                self._add(number)
            self.receive(self._peer.data_to_send())
        self.h2.clear_outbound_data_buffer()

    def _add(self, number: int) -> None:
        stream = self._processor.connection.create_stream(stream_id=number)
        self._processor.register(stream)

    def receive(self, data: bytes) -> None:
        if self.failure is not None:
            return
        if self._ours:
            self._frames.receive(data)
        else:
            self._to_h2(data)

    def _to_h2(self, data: bytes) -> bool:
        try:
            events = self.h2.receive_data(data)
        except ProtocolError as error:
            self.failure = type(error)
            return False
        self.h2_bytes += len(data)
        for event in events:
            self.pings += isinstance(event, PingReceived)
            if event.__class__ in self._processor.processors:
                self._processor.process(event)
        self._all |= self._processor.streams
        return True

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None: ...

    def came(self) -> dict[int, tuple[bytes, int]]:
        """To each stream: the bytes, and what its peer's window was narrowed by for them."""
        found = {}
        for number, stream in self._all.items():
            queued = list(cast(Any, stream.buffer._unacked)._queue)
            found[number] = (
                b"".join([it.data for it in queued]),
                sum(it.ack_size for it in queued),
            )
        return found

    def state(self) -> tuple[object, ...]:
        """All that h2 has in mind."""
        streams = {
            number: (
                stream.state_machine.state,
                stream._inbound_window_manager.current_window_size,
                stream._inbound_window_manager._bytes_processed,
                stream._actual_content_length,
            )
            for number, stream in self.h2.streams.items()
        }
        window = self.h2._inbound_flow_control_window_manager.current_window_size
        waiting = bytes(self.h2.incoming_buffer._data) + bytes(self._frames._kept)
        unsent = bytes(self.h2._data_to_send)
        return streams, window, waiting, unsent, self.h2.state_machine.state, self.pings


def plain(stream_id: int, size: int) -> bytes:
    return DataFrame(stream_id, bytes(range(256)) * (size // 256) + bytes(size % 256)).serialize()


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


LARGE = 60_000


@settings(deadline=None)
@given(
    client=st.booleans(),
    sizes=st.lists(st.sampled_from([10, 20_000, 40_000, LARGE]), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 70_000), max_size=8),
)
@example(client=False, sizes=[LARGE], cuts=[20_000, 40_000])
@example(client=False, sizes=[LARGE], cuts=[20_000, 20_100, 50_000])
@example(client=True, sizes=[40_000, 10], cuts=[39_000])
def test_a_large_frame_that_comes_in_parts_ends_as_one_that_comes_whole(
    client: bool, sizes: list[int], cuts: list[int]
) -> None:
    ours = Side(ours=True, client=client, frame_bytes_max=LARGE)
    theirs = Side(ours=False, client=client, frame_bytes_max=LARGE)
    ping = PingFrame(0, b"12345678").serialize()
    for size in sizes:
        wire = plain(KNOWN, size) + ping
        edges = sorted({0, len(wire), *[cut for cut in cuts if cut < len(wire)]})
        for start, stop in pairwise(edges):
            ours.receive(wire[start:stop])
        theirs.receive(wire)
        assert ours.failure is theirs.failure
        if theirs.failure is not None:  # beyond the window: refused whole
            return
        assert not ours._frames.unfinished
        assert ours.came() == theirs.came()
        assert ours.state() == theirs.state()


def test_what_is_here_of_a_large_frame_is_passed_on_before_its_end() -> None:
    side = Side(ours=True, client=False, frame_bytes_max=LARGE)
    wire = plain(KNOWN, LARGE)
    assert not side._frames.receive(wire[:PART_BYTES_MIN])
    assert side.came()[KNOWN] == (b"", 0), "with its head it is too little"
    assert not side._frames.receive(wire[PART_BYTES_MIN : PART_BYTES_MIN + 20])
    assert side.came()[KNOWN][0] == wire[9 : PART_BYTES_MIN + 20]
    side = Side(ours=True, client=False, frame_bytes_max=LARGE)
    assert not side._frames.receive(wire[:20_000])
    assert side.came()[KNOWN][0] == wire[9:20_000]
    assert not side._frames.receive(wire[20_000:40_000])
    assert side.came()[KNOWN][0] == wire[9:40_000]
    assert side._frames.unfinished
    assert side._frames.receive(wire[40_000:] + plain(KNOWN, 3))
    data, owed_bytes = side.came()[KNOWN]
    assert data == wire[9:] + bytes(3)
    assert owed_bytes == len(data)
    assert not side._frames.unfinished


def test_the_rest_of_a_frame_whose_stream_has_ended_is_given_back_to_the_connection() -> None:
    ours = Side(ours=True, client=False, frame_bytes_max=LARGE)
    theirs = Side(ours=False, client=False, frame_bytes_max=LARGE)
    wire = plain(KNOWN, LARGE)
    ours.receive(wire[:20_000])
    theirs.receive(plain(KNOWN, 20_000 - 9))
    for side in (ours, theirs):
        side.h2.reset_stream(KNOWN)
    ours.receive(wire[20_000:])
    theirs.receive(plain(KNOWN, LARGE + 9 - 20_000))
    assert ours.failure is theirs.failure is None
    assert ours.state() == theirs.state()


@pytest.mark.parametrize("of", ["a padded one", "no stream", "a known length", "beyond the window"])
def test_a_large_frame_that_h2_may_refuse_is_kept_for_it(of: str) -> None:
    side = Side(ours=True, client=False, frame_bytes_max=LARGE)
    wire = plain(COUNTED if of == "a known length" else KNOWN, LARGE)
    if of == "a padded one":
        wire = DataFrame(KNOWN, bytes(LARGE - 10), flags=["PADDED"], pad_length=9).serialize()
    elif of == "no stream":
        wire = plain(NEW, LARGE)
    elif of == "beyond the window":
        side.receive(plain(KNOWN, 20_000))
    before = side.came()
    side.receive(wire[:40_000])
    assert side.came() == before
    assert side._frames.unfinished


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
