"""A log cut at a tick, against a list of its records."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.backup.log_cut import (
    CutEnd,
    RecordPlace,
    SplitRecord,
    end_up_to,
    whole_segments,
)
from broker.model.ids import MessageId, Term, TimeTick

Record = tuple[int, int, int, int]
"""First tick, messages, bytes, term."""


@st.composite
def logs(draw: st.DrawFn) -> list[list[Record]]:
    """Segments of records whose ticks only grow, with gaps; no segment is empty."""
    tick, found = 0, []
    for sizes in draw(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=6), max_size=6)):
        segment: list[Record] = []
        for messages in sizes:
            tick += draw(st.integers(1, 4))
            segment.append((tick, messages, draw(st.integers(1, 9)), 1 + tick // 20))
            tick += messages - 1
        found.append(segment)
    return found


def places(segment: list[Record], start: CutEnd) -> list[RecordPlace]:
    found, end = [], start
    for tick, messages, size, term in segment:
        last = TimeTick(tick + messages - 1)
        end = CutEnd(end.offset + size, MessageId(end.next_id + messages), last, Term(term))
        found.append(RecordPlace(TimeTick(tick), end))
    return found


@given(logs(), st.integers(0, 150))
def test_a_cut_keeps_exactly_the_records_up_to_its_tick(log: list[list[Record]], at: int) -> None:
    tick = TimeTick(at)
    records = [it for segment in log for it in segment]
    kept = [it for it in records if it[0] + it[1] - 1 <= tick]
    torn = any(first <= tick < first + messages - 1 for first, messages, *_ in records)

    whole = whole_segments([TimeTick(it[-1][0] + it[-1][1] - 1) for it in log], tick)
    start = CutEnd(0, MessageId(1), TimeTick(0), Term(0))
    for segment in log[:whole]:
        start = CutEnd(0, *_next(places(segment, start)[-1].behind))
    rest = log[whole] if whole < len(log) else []
    if torn:
        with pytest.raises(SplitRecord):
            end_up_to(places(rest, start), tick, start)
        return
    end = end_up_to(places(rest, start), tick, start)

    assert end.next_id == 1 + sum(it[1] for it in kept)
    assert end.last_tick == (kept[-1][0] + kept[-1][1] - 1 if kept else 0)
    assert end.last_term == (kept[-1][3] if kept else 0)
    in_rest = len(kept) - sum(map(len, log[:whole]))
    assert end.offset == sum(it[2] for it in rest[:in_rest])
    assert 0 <= in_rest < max(len(rest), 1) or not rest


def _next(end: CutEnd) -> tuple[MessageId, TimeTick, Term]:
    return end.next_id, end.last_tick, end.last_term


@given(logs())
def test_a_later_tick_never_keeps_less(log: list[list[Record]]) -> None:
    last_ticks = [TimeTick(it[-1][0] + it[-1][1] - 1) for it in log]
    kept = [whole_segments(last_ticks, TimeTick(tick)) for tick in range(150)]
    assert all(earlier <= later for earlier, later in pairwise(kept))


def test_nothing_behind_the_cut_is_read_but_one_record() -> None:
    start = CutEnd(0, MessageId(1), TimeTick(0), Term(0))

    def endless() -> Iterator[RecordPlace]:
        yield from places([(5, 1, 1, 1), (9, 1, 1, 1)], start)
        raise AssertionError("read on")

    assert end_up_to(endless(), TimeTick(6), start).next_id == 2
