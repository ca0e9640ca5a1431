"""Spans of ticks against a plain set."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from broker.core.groups.tick_spans import TickSpans
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick

END = 24
ticks = st.integers(0, END)
spans = st.builds(lambda a, b: TickSpan(TimeTick(a), TimeTick(b)), ticks, ticks)


def inside(span: TickSpan) -> set[int]:
    return set(range(span.after + 1, span.upto + 1))


def all_of(found: TickSpans) -> set[int]:
    """The ticks, of spans that must be sorted, not empty, and apart from each other."""
    listed = list(found)
    assert all(it.after < it.upto for it in listed)
    assert all(a.upto < b.after for a, b in pairwise(listed))
    assert len(found) == len(listed)
    return {tick for it in listed for tick in inside(it)}


@given(st.lists(st.tuples(st.booleans(), spans), max_size=12), spans)
def test_it_is_the_set_that_was_added_and_not_removed(
    steps: list[tuple[bool, TickSpan]], asked: TickSpan
) -> None:
    found, naive = TickSpans(), set[int]()
    for adds, span in steps:
        if adds:
            found.add(span)
            naive |= inside(span)
        else:
            found.remove(span)
            naive -= inside(span)
        assert all_of(found) == naive
    assert found.end == max(naive, default=0)
    assert [tick for tick in range(END + 1) if found.has(TimeTick(tick))] == sorted(naive)
    if asked.after < asked.upto:
        assert {t for it in found.within(asked) for t in inside(it)} == naive & inside(asked)
        assert all_of(found.missing(asked)) == inside(asked) - naive
    assert all_of(TickSpans(found)) == naive


@given(st.lists(spans, max_size=12), ticks)
def test_a_floor_is_raised_to_the_first_tick_that_is_missing(
    added: list[TickSpan], floor: int
) -> None:
    found, naive = TickSpans(added), set[int]()
    for span in added:
        naive |= inside(span)
    expected = floor
    while expected + 1 in naive or any(it > expected and it - 1 == expected for it in naive):
        expected += 1
    raised = found.raised(TimeTick(floor))
    # A span that begins at or below the floor is covered up to its end.
    assert raised == expected
    assert all_of(found) == {it for it in naive if it > raised}
