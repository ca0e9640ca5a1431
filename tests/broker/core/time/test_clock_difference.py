"""The difference between ticks and the clock of a host, and who is told what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.time.clock_difference import WARN_MS, ahead_ms, leader_warning, node_warning
from broker.core.time.tso import WINDOW_MS, compose

NOW_MS = 1_700_000_000_000
TIMES = st.integers(0, 2 * NOW_MS)


@pytest.mark.parametrize("off_ms", [600_000, 1, 0, -1, -600_000])
def test_the_difference_is_that_of_the_clocks(off_ms: int) -> None:
    assert ahead_ms(compose(NOW_MS + off_ms, 7), NOW_MS, NOW_MS) == off_ms


@given(asked_ms=TIMES, waited_ms=st.integers(0, NOW_MS), at=st.floats(0, 1))
def test_however_long_an_answer_takes_clocks_that_agree_do_not_differ(
    asked_ms: int, waited_ms: int, at: float
) -> None:
    tick = compose(asked_ms + int(at * waited_ms), 0)
    assert ahead_ms(tick, asked_ms, asked_ms + waited_ms) == 0
    # The same where the clock is set back meanwhile.
    assert ahead_ms(tick, asked_ms + waited_ms, asked_ms) == 0


@given(asked_ms=TIMES, waited_ms=st.integers(0, NOW_MS), at=TIMES)
def test_a_difference_is_never_told_larger_than_it_is(
    asked_ms: int, waited_ms: int, at: int
) -> None:
    answered_ms = asked_ms + waited_ms
    found = ahead_ms(compose(at, 0), asked_ms, answered_ms)
    assert abs(found) <= abs(at - asked_ms)
    assert abs(found) <= abs(at - answered_ms)
    assert asked_ms <= at - found <= answered_ms


def test_a_new_leader_that_begins_a_window_ahead_is_not_warned_of() -> None:
    assert WINDOW_MS < WARN_MS
    assert not leader_warning(WINDOW_MS)
    assert not node_warning(WINDOW_MS)


@pytest.mark.parametrize("off_ms", [WARN_MS, 0, -WARN_MS])
def test_what_is_normal_is_not_warned_of(off_ms: int) -> None:
    assert not node_warning(off_ms)
    assert not leader_warning(off_ms)


def test_a_node_tells_by_how_much_and_in_which_direction_and_what_to_do() -> None:
    told = node_warning(600_000)
    for part in (
        "which follow the clock of the leading coordinator",
        "are 600.0 s ahead of the clock of this node's host",
        "run NTP or chrony on every host",
    ):
        assert part in told
    assert "are 5.0 s behind the clock of this node's host" in node_warning(-WARN_MS - 1)


def test_a_leader_tells_that_ticks_are_ahead_and_an_idle_one_that_they_are_behind_nothing() -> None:
    told = leader_warning(590_100)
    assert "time ticks are 590.1 s ahead of the clock of this coordinator's host" in told
    assert "run NTP or chrony on every host" in told
    assert not leader_warning(-590_100)
