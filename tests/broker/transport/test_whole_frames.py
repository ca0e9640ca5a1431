"""Large frames that come in parts: all is as if they had come whole."""

from itertools import pairwise

import pytest
from hyperframe.frame import DataFrame, PingFrame
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.transport.whole_frames import PART_BYTES_MIN
from tests.broker.transport.sides import COUNTED, KNOWN, NEW, Side, plain

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
