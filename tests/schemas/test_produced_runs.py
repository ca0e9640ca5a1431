"""Requests scanned together, against the same requests scanned one at a time."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.encoding.oversize import Oversize
from schemas.produced_runs import RUN_BYTES_MAX
from schemas.wire import (
    Malformed,
    ScannedMessage,
    ScannedProduce,
    message,
    produce_request,
    scan_produce_request,
    scan_produce_requests,
)
from tests.schemas import messages

ALONE = ("_btt", "_tx", "_bh", "_rh")
PLAIN = st.fixed_dictionaries(
    {"_t": st.sampled_from("23"), "_vc": st.sampled_from("ab")},
    optional={"_v": st.sampled_from("12"), "_h": st.sampled_from(["", "CAE="]), "key": st.text()},
)
ODD = st.fixed_dictionaries(
    {"_t": st.sampled_from(["2", "5", "x"]), "_vc": st.sampled_from("ab")},
    optional={key: st.sampled_from(["", "1", "!"]) for key in ALONE},
)
MESSAGES = st.builds(message, st.binary(max_size=5), PLAIN | ODD)
BROKEN = st.sampled_from(
    [
        b"",
        b"\x12\x00",
        b"\x2a\x00",
        b"\x0a\x02\x08\x07",
        b"\x0a\x05\x08",
        Oversize(b"\x0a", 1 << 30),
    ]
)


def requests_of(encoded: list[bytes]) -> list[bytes]:
    """Their ids are their places."""
    return [produce_request(at, each) for at, each in enumerate(encoded)]


def one_by_one(frames: list[bytes]) -> tuple[list[ScannedProduce], int]:
    """The appends, and the index of the first frame that is too large or malformed."""
    found: list[ScannedProduce] = []
    for index, frame in enumerate(frames):
        if isinstance(frame, Oversize):
            return found, index
        try:
            request = scan_produce_request(frame)
        except Malformed:
            return found, index
        if isinstance(request, ScannedProduce):
            found.append(request)
    return found, len(frames)


def stands_alone(facts: ScannedMessage) -> bool:
    other = facts.broadcast or facts.replicate or facts.barrier_tick != 0
    return other or facts.txn is not None or facts.type not in (2, 3)


@given(
    st.lists(MESSAGES | messages.odd_messages().map(lambda odd: odd[2]), max_size=8),
    st.lists(st.tuples(st.integers(0, 8), BROKEN), max_size=2),
)
def test_the_messages_of_runs_are_those_that_are_scanned_singly(
    encoded: list[bytes], broken: list[tuple[int, bytes]]
) -> None:
    frames = requests_of(encoded)
    for at, frame in broken:
        frames.insert(at, frame)
    runs, stopped = scan_produce_requests(frames, 0)
    singly, first_broken = one_by_one(frames)
    assert stopped == first_broken
    found = [
        (number, each)
        for run in runs
        for number, each in zip(run.request_ids, run.messages(), strict=True)
    ]
    # What was stripped is reported of a message alone: nobody asks it of a run.
    expected = [(number, each._replace(stripped=())) for number, each in singly]
    found = [(number, each._replace(stripped=())) for number, each in found]
    assert sorted(found, key=str) == sorted(expected, key=str)
    for vchannel in {each.vchannel for _, each in expected}:
        assert [it for it in found if it[1].vchannel == vchannel] == [
            it for it in expected if it[1].vchannel == vchannel
        ]


@given(st.lists(MESSAGES, max_size=12))
def test_a_run_holds_alike_rows_and_nothing_passes_a_message_that_stands_alone(
    encoded: list[bytes],
) -> None:
    runs, _ = scan_produce_requests(requests_of(encoded), 0)
    order = [number for run in runs for number in run.request_ids]
    for run in runs:
        for each in run.messages():
            assert each[:3] == run.facts[:3]
            assert each.has_header == run.facts.has_header
        if stands_alone(run.facts):
            (number,) = run.request_ids
            assert sorted(order[:number]) == list(range(number))


def test_rows_of_one_vchannel_join_also_where_others_lie_between() -> None:
    frames = [
        produce_request(number, message(b"row", {"_t": "2", "_v": "1", "_vc": "ab"[number % 2]}))
        for number in range(10)
    ]
    runs, stopped = scan_produce_requests(frames, 4)
    assert stopped == 10
    assert [run.request_ids for run in runs] == [[4, 6, 8], [5, 7, 9]]


def test_a_run_is_bounded_in_bytes_but_for_one_large_message() -> None:
    sizes = [RUN_BYTES_MAX // 2 - 100, 10, RUN_BYTES_MAX // 2, RUN_BYTES_MAX * 2, 5, 5]
    frames = [
        produce_request(at, message(bytes(size), {"_t": "2", "_v": "1", "_vc": "a"}))
        for at, size in enumerate(sizes)
    ]
    runs, _ = scan_produce_requests(frames, 0)
    assert [run.request_ids for run in runs] == [[0, 1], [2], [3], [4, 5]]
    assert all(run.stored_bytes <= RUN_BYTES_MAX or len(run.bodies) == 1 for run in runs)
    assert all(run.stored_bytes == sum(map(len, run.bodies)) for run in runs)
