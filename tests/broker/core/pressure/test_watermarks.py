"""Levels rise at their marks and fall only when there is clearly more room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.pressure.watermarks import (
    FASTEST_BYTES_S,
    NEVER,
    STEPS,
    Level,
    Watermarks,
    level_after,
    slow_bytes_s,
)

MARKS = Watermarks(warn=0.8, slow=0.9, refuse=0.96)
USED = st.floats(0, 1)


def walked(*used: float) -> Level:
    level = Level.NORMAL
    for each in used:
        level = level_after(level, each, MARKS)
    return level


@pytest.mark.parametrize(
    ("used", "level"),
    [
        (0.0, Level.NORMAL),
        (0.79, Level.NORMAL),
        (0.8, Level.WARN),
        (0.9, Level.SLOW),
        (0.959, Level.SLOW),
        (0.96, Level.REFUSE),
        (1.0, Level.REFUSE),
    ],
)
def test_a_level_begins_at_its_mark(used: float, level: Level) -> None:
    assert walked(used) is level


def test_a_level_ends_only_when_half_as_much_again_is_free() -> None:
    assert walked(0.96, 0.945) is Level.REFUSE
    assert walked(0.96, 0.93) is Level.SLOW
    assert walked(0.96, 0.86) is Level.SLOW
    assert walked(0.96, 0.84) is Level.WARN
    assert walked(0.96, 0.71) is Level.WARN
    assert walked(0.96, 0.69) is Level.NORMAL


def test_marks_that_are_never_reached_begin_no_level() -> None:
    assert level_after(Level.NORMAL, 1.0, Watermarks()) is Level.NORMAL
    assert level_after(Level.REFUSE, 1.0, Watermarks()) is Level.NORMAL


@given(st.lists(USED, max_size=20), USED)
def test_more_use_never_means_a_lower_level(before: list[float], used: float) -> None:
    level = walked(*before)
    assert level_after(level, used, MARKS) <= level_after(level, min(1.0, used + 0.05), MARKS)


@given(st.lists(USED, max_size=20), USED)
def test_looking_again_at_the_same_use_changes_nothing(before: list[float], used: float) -> None:
    once = walked(*before, used)
    assert level_after(once, used, MARKS) is once


def test_a_large_disk_is_used_until_little_is_left_and_a_small_one_by_its_share() -> None:
    gib = 1 << 30
    large = MARKS.with_room(10_000 * gib, 20 * gib, 4 * gib, gib)
    assert large.refuse == pytest.approx(0.9999)
    assert MARKS.with_room(10 * gib, 20 * gib, 4 * gib, gib) == Watermarks(0.8, 0.9, 0.96)
    assert Watermarks().with_room(10 * gib, 20 * gib, 4 * gib, gib).refuse == NEVER


@given(USED, USED)
def test_the_rate_falls_with_what_is_left_and_stays_within_its_bounds(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert slow_bytes_s(low, MARKS) >= slow_bytes_s(high, MARKS)
    assert FASTEST_BYTES_S >> (STEPS - 1) <= slow_bytes_s(a, MARKS) <= FASTEST_BYTES_S


def test_the_rate_has_all_its_steps_between_slow_and_refuse() -> None:
    found = {slow_bytes_s(0.9 + 0.06 * step / 100, MARKS) for step in range(100)}
    assert found == {FASTEST_BYTES_S >> step for step in range(STEPS)}


def test_marks_without_a_span_slow_down_to_the_highest_rate() -> None:
    assert slow_bytes_s(0.95, Watermarks(0.9, 0.95, 0.95)) == FASTEST_BYTES_S
