"""What is settled at once is divided into requests that a server takes."""

import pytest

from broker.client.errors import LeaseLost, OutcomeUnknown, TidemarkError
from broker.client.groups.settle_parts import SettlePart, part_error, parts_of
from broker.model.failure import StreamingCode
from broker.model.groups.consumer_group import TickSpan
from broker.model.ids import TimeTick


def span(after: int, upto: int) -> TickSpan:
    return TickSpan(TimeTick(after), TimeTick(upto))


def part(*spans: TickSpan) -> SettlePart:
    return SettlePart(spans, [it.upto for it in spans])


def test_spans_that_touch_become_one_and_those_that_do_not_stay_apart() -> None:
    (one,) = parts_of([span(0, 1), span(1, 4), span(5, 6), span(6, 7)], 2, set())
    assert one.spans == [span(0, 4), span(5, 7)]
    assert one.uptos == [1, 4, 6, 7]


def test_what_was_named_before_is_joined_with_neither_neighbour() -> None:
    (one,) = parts_of([span(it, it + 1) for it in range(5)], 3, {3})
    assert one.spans == [span(0, 2), span(2, 3), span(3, 5)]


def test_nothing_is_joined_when_there_is_no_telling_what_was_taken_back() -> None:
    parts = parts_of([span(it, it + 1) for it in range(5)], 2, None)
    assert [len(it.spans) for it in parts] == [2, 2, 1]
    assert [end for it in parts for end in it.uptos] == [1, 2, 3, 4, 5]


def test_a_span_that_belongs_to_the_last_of_a_full_part_is_still_joined() -> None:
    first, second = parts_of([span(0, 1), span(2, 3), span(3, 4), span(5, 6)], 2, set())
    assert (first.spans, first.uptos) == ([span(0, 1), span(2, 4)], [1, 3, 4])
    assert second.spans == [span(5, 6)]


@pytest.mark.parametrize(
    "error", [LeaseLost("the lease is over", StreamingCode.INNER), OutcomeUnknown("no answer")]
)
def test_the_error_of_a_part_says_what_became_of_the_others(error: TidemarkError) -> None:
    parts = [part(span(0, 1), span(2, 3)), part(span(4, 5), span(6, 7)), part(span(8, 9))]
    told = part_error(error, parts, 1)
    assert type(told) is type(error)
    assert getattr(told, "code", None) == getattr(error, "code", None)
    wanted = (
        "5 ticks were named, too many for one request: this is about the 2 from tick 5 to 7;"
        " 2 (from tick 1 to 3) are settled, 1 (from tick 9 to 9) were not sent"
    )
    assert wanted in str(told)
    assert "; 0 are settled, 3 (from tick 5 to 9) were not sent" in str(part_error(error, parts, 0))
