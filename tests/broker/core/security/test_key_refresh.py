"""When keys are read, and that strangers cannot make it more often."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from broker.core.security.key_refresh import PAUSE_S, RETRY_S, KeyRefresh


def after_read(*, failed: bool = False, period_s: float = 300.0) -> KeyRefresh:
    made = KeyRefresh(period_s)
    made.begin(0.0)
    made.end(failed=failed)
    return made


def test_keys_are_read_at_once_and_then_by_the_period() -> None:
    assert KeyRefresh(300.0).due(0.0)
    made = after_read()
    assert not made.due(299.9)
    assert made.due(300.0)


def test_a_failed_read_is_repeated_earlier() -> None:
    made = after_read(failed=True)
    assert not made.due(RETRY_S - 0.1)
    assert made.due(RETRY_S)
    assert after_read(failed=True, period_s=10.0).due(10.0)


def test_an_unknown_key_is_looked_for_but_not_during_the_pause() -> None:
    made = after_read()
    assert not made.want(PAUSE_S - 0.1)
    assert not made.due(PAUSE_S)
    assert made.want(PAUSE_S)
    assert made.due(PAUSE_S)


def test_the_pause_may_be_shorter() -> None:
    made = KeyRefresh(300.0, pause_s=1.0)
    made.begin(0.0)
    made.end(failed=False)
    assert not made.want(0.9)
    assert made.want(1.0)
    assert made.due(1.0)


def test_an_unknown_key_waits_for_the_read_that_runs() -> None:
    made = KeyRefresh(300.0)
    made.begin(0.0)
    assert made.want(1.0)
    assert not made.due(1000.0)
    made.end(failed=False)
    assert not made.due(PAUSE_S)


def test_an_unknown_key_before_the_first_read_waits_for_it() -> None:
    made = KeyRefresh(300.0)
    assert made.want(0.0)
    assert made.due(0.0)


@given(st.lists(st.floats(0.0, 5.0), max_size=200))
def test_strangers_with_any_number_of_keys_cause_one_read_in_each_pause(gaps: list[float]) -> None:
    made, now_s, begun = KeyRefresh(300.0), 0.0, list[float]()
    for gap in gaps:
        now_s += gap
        made.want(now_s)
        if made.due(now_s):
            made.begin(now_s)
            made.end(failed=False)
            begun.append(now_s)
    assert all(later - earlier >= PAUSE_S for earlier, later in pairwise(begun))
