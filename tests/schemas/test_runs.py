"""Runs against the same messages encoded one at a time."""

from hypothesis import example, given
from hypothesis import strategies as st

from schemas.encoding.base36 import INT64_MAX
from schemas.encoding.frames import frames
from schemas.encoding.varint import UINT64_MAX
from schemas.wire import consume_message, consume_run, produce_result, produce_run

COUNT_MAX = 200
# Near the places where a digit of base 36 or a byte of a varint is carried.
EDGES = st.sampled_from([1, 36**2, 36**3, 36**4, 36**6, 1 << 7, 1 << 14, 1 << 21, 1 << 63])
NUMBERS = st.builds(lambda edge, less: max(1, edge - less), EDGES, st.integers(0, COUNT_MAX))
IDS = NUMBERS.map(lambda it: min(it, INT64_MAX - COUNT_MAX))
TICKS = st.one_of(NUMBERS, st.integers(1, UINT64_MAX - COUNT_MAX))
REQUESTS = st.lists(st.integers(-(1 << 63), INT64_MAX), max_size=COUNT_MAX)
STORED = st.lists(st.sampled_from([b"", b"a", b"b" * 90, b"c" * 130, b"d" * 17000]), max_size=90)


@given(STORED, IDS, TICKS, st.one_of(st.none(), st.integers(0, 2000)), st.integers(0, 1 << 40))
@example([b"a"] * COUNT_MAX, 36**2 - 5, (1 << 62) + 36 * 36 - 9, None, 1)
def test_a_delivered_run_is_its_messages_one_after_the_other(
    stored: list[bytes], first: int, tick: int, below: int | None, term: int
) -> None:
    # None: each message confirms its own id.
    confirmed = first if below is None else max(0, first - 1 - below)
    singly = [
        consume_message(first + at, tick + at, first + at if below is None else confirmed, term, it)
        for at, it in enumerate(stored)
    ]
    assert consume_run(first, tick, confirmed, term, stored) == frames(singly)


@given(REQUESTS, IDS, TICKS, st.one_of(st.none(), st.integers(0, 2000)))
@example(list(range(16300, 16300 + COUNT_MAX)), 36**3 - 9, (1 << 60) + 100, None)
def test_the_results_of_a_run_are_those_of_its_messages(
    requests: list[int], first: int, tick: int, below: int | None
) -> None:
    confirmed = first if below is None else max(0, first - 1 - below)
    singly = [
        produce_result(it, first + at, tick + at, first + at if below is None else confirmed)
        for at, it in enumerate(requests)
    ]
    assert produce_run(requests, first, tick, confirmed) == frames(singly)
