"""The distance between a barrier tick and the oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.time.tick_lead import lead_s, not_reached, unreachable
from broker.core.time.tso import compose
from broker.model.failure import StreamingCode
from broker.model.ids import TimeTick

NOW = TimeTick(1_600_000_000_000 << 18)
TICKS = st.integers(0, (1 << 64) - 1).map(TimeTick)


@given(barrier=TICKS, issued=TICKS)
def test_no_wait_is_left_exactly_when_the_next_tick_is_above_the_barrier(
    barrier: TimeTick, issued: TimeTick
) -> None:
    assert (lead_s(barrier, issued) == 0.0) == (issued + 1 > barrier)


@given(logical=st.integers(0, (1 << 18) - 1), ahead_ms=st.integers(0, 10_000))
def test_a_clock_that_has_run_for_the_lead_issues_a_larger_tick(
    logical: int, ahead_ms: int
) -> None:
    barrier = TimeTick(NOW + (ahead_ms << 18) + logical)
    later_ms = (NOW >> 18) + round(lead_s(barrier, NOW) * 1000)
    assert (compose(later_ms, 0) > barrier) or lead_s(barrier, NOW) == 0.0


@pytest.mark.parametrize("ahead_ms", [0, 999])
def test_a_tick_that_can_be_reached_in_time_is_waited_for(ahead_ms: int) -> None:
    assert unreachable(TimeTick(NOW + (ahead_ms << 18)), NOW, 1.0) is None


def test_a_tick_too_far_ahead_is_refused_for_good_with_the_distance_and_the_limit() -> None:
    refusal = unreachable(TimeTick(NOW + (1_000 << 18)), NOW, 1.0)
    assert refusal is not None
    assert refusal.code is StreamingCode.UNRECOVERABLE
    for part in ("1.001 s ahead", str(NOW), "at most 1 s", "nothing was stored"):
        assert part in refusal.cause


def test_a_wait_in_vain_may_be_repeated() -> None:
    refusal = not_reached(TimeTick(NOW + 1), NOW, 2.5)
    assert refusal.code is StreamingCode.INNER
    assert "within 2.5 s" in refusal.cause
