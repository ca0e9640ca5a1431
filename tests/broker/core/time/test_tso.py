"""The tick oracle, driven by hostile clocks and restarts, against one list of all ticks."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.core.time import tso
from broker.model.ids import TICK_LOGICAL_MAX, TimeTick

NOW_MS = 1_600_000_000_000


class Holders(RuleBasedStateMachine):
    """Several holders over one durable bound, none of which knows of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = NOW_MS
        self.saved_ms = 0
        self.holders: list[tso.HybridClock] = []
        self.ranges: list[tuple[int, int]] = []
        self.newest: dict[int, int] = {}

    @rule(step_ms=st.sampled_from([-3_600_000, -5_000, -1, 0, 1, 50, 1_400, 4_000]))
    def the_clock_moves(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @rule()
    def a_process_starts(self) -> None:
        before, self.saved_ms = self.saved_ms, tso.first_bound(self.saved_ms, self.now_ms)
        self.holders.append(tso.started(before, self.saved_ms))

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), count=st.sampled_from([1, 2, 1_000, 65_535, 65_536]))
    def ticks_are_reserved(self, data: st.DataObject, count: int) -> None:
        which = data.draw(st.integers(0, len(self.holders) - 1))
        match tso.reserve(self.holders[which], count, self.now_ms):
            case tso.ReservedTicks(after=after, first=first):
                assert first > self.newest.get(which, 0)
                self.newest[which] = first + count - 1
                self.holders[which] = after
                self.ranges.append((first, first + count))
            case tso.SaveFirst(bound_ms=bound_ms):
                self.save(which, bound_ms)
                again = tso.reserve(self.holders[which], count, self.now_ms)
                assert isinstance(again, tso.ReservedTicks)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def the_window_is_extended_ahead_of_need(self, data: st.DataObject) -> None:
        which = data.draw(st.integers(0, len(self.holders) - 1))
        due_ms = tso.bound_due(self.holders[which], self.now_ms)
        if due_ms is not None:
            self.save(which, due_ms)

    @invariant()
    def no_tick_was_handed_out_twice_or_above_the_durable_bound(self) -> None:
        ordered = sorted(self.ranges)
        assert all(end <= start for (_, end), (start, _) in pairwise(ordered))
        assert all(end <= tso.compose(self.saved_ms, 0) for _, end in ordered)

    def save(self, which: int, bound_ms: int) -> None:
        """What the durable side does: never lower a bound that somebody else raised."""
        before = self.saved_ms
        if before != self.holders[which].bound_ms:
            bound_ms = max(bound_ms, tso.first_bound(before, self.now_ms))
        self.saved_ms = max(before, bound_ms)
        self.holders[which] = tso.granted(self.holders[which], before, self.saved_ms)


TestHolders = Holders.TestCase


def fresh(now_ms: int = NOW_MS) -> tso.HybridClock:
    return tso.started(0, tso.first_bound(0, now_ms))


def take(hybrid: tso.HybridClock, count: int, now_ms: int) -> tso.ReservedTicks:
    reserved = tso.reserve(hybrid, count, now_ms)
    assert isinstance(reserved, tso.ReservedTicks)
    return reserved


def test_a_tick_is_milliseconds_and_a_logical_part() -> None:
    assert tso.compose(NOW_MS, 0) == 419430400000000000
    assert tso.compose(NOW_MS, 5) == 419430400000000005


@given(st.integers(0, 2**45), st.integers(0, TICK_LOGICAL_MAX))
def test_a_tick_can_be_taken_apart(physical_ms: int, logical: int) -> None:
    tick = tso.compose(physical_ms, logical)
    assert tso.physical_ms_of(tick) == physical_ms
    assert tick & TICK_LOGICAL_MAX == logical


def test_a_batch_starts_where_the_one_before_ended() -> None:
    first = take(fresh(), 10, NOW_MS)
    second = take(first.after, 1, NOW_MS)
    assert first.first == tso.compose(NOW_MS, 0)
    assert second.first == first.first + 10


def test_a_clock_that_goes_back_is_ignored() -> None:
    first = take(fresh(), 1, NOW_MS)
    assert take(first.after, 1, NOW_MS - 60_000).first == first.first + 1


def test_the_fifth_full_batch_of_a_millisecond_borrows_the_next_one() -> None:
    hybrid, firsts = fresh(), list[TimeTick]()
    for _ in range(5):
        reserved = take(hybrid, tso.COUNT_MAX, NOW_MS)
        firsts.append(reserved.first)
        hybrid = reserved.after
    assert firsts[4] == tso.compose(NOW_MS + 1, 0)
    assert firsts[3] == firsts[0] + 3 * tso.COUNT_MAX


def test_borrowing_stops_at_the_durable_bound() -> None:
    hybrid = tso.HybridClock(NOW_MS, TICK_LOGICAL_MAX, NOW_MS + 1)
    assert tso.reserve(hybrid, 2, NOW_MS) == tso.SaveFirst(NOW_MS + 1 + tso.WINDOW_MS)


def test_after_a_pause_longer_than_the_window_the_bound_is_saved_first() -> None:
    late_ms = NOW_MS + 10_000
    assert tso.reserve(fresh(), 1, late_ms) == tso.SaveFirst(late_ms + tso.WINDOW_MS)


def test_a_restart_with_the_clock_gone_back_goes_on_above_the_old_window() -> None:
    before = take(fresh(), 1, NOW_MS)
    saved_ms = before.after.bound_ms
    back_ms = NOW_MS - 3_600_000
    after = take(tso.started(saved_ms, tso.first_bound(saved_ms, back_ms)), 1, back_ms)
    assert tso.physical_ms_of(after.first) == saved_ms + 1


def test_the_bound_is_due_when_half_of_the_window_is_gone() -> None:
    hybrid = fresh()
    assert tso.bound_due(hybrid, NOW_MS + 1_499) is None
    assert tso.bound_due(hybrid, NOW_MS + 1_500) == NOW_MS + 1_500 + tso.WINDOW_MS


def test_a_holder_that_lost_a_race_continues_above_the_other_one() -> None:
    hybrid = fresh()
    other_ms = hybrid.bound_ms + 500
    after = tso.granted(hybrid, other_ms, other_ms + tso.WINDOW_MS)
    assert after == tso.started(other_ms, other_ms + tso.WINDOW_MS)


def test_a_late_word_of_a_smaller_bound_takes_nothing_back() -> None:
    hybrid = fresh()
    assert tso.granted(hybrid, hybrid.bound_ms, hybrid.bound_ms - 1) == hybrid


def test_timestamps_in_huge_batches_stop_a_second_ahead_of_the_clock_and_change_nothing() -> None:
    hybrid, firsts = fresh(), list[TimeTick]()
    while True:
        outcome = tso.reserve_near(hybrid, tso.COUNT_MAX, NOW_MS, 1_000)
        if not isinstance(outcome, tso.ReservedTicks):
            break
        hybrid, firsts = outcome.after, [*firsts, outcome.first]
    assert outcome == tso.TooFarAhead(1_001)
    assert len(firsts) == 4 * 1_001
    assert tso.physical_ms_of(firsts[-1]) == NOW_MS + 1_000
    # The clock has to catch up, and one who sets no limit is served meanwhile.
    assert isinstance(tso.reserve(hybrid, 1, NOW_MS), tso.ReservedTicks)
    assert isinstance(tso.reserve_near(hybrid, 65_536, NOW_MS + 1, 1_000), tso.ReservedTicks)


def test_a_clock_far_behind_is_a_refusal_before_any_bound_is_saved() -> None:
    hybrid = tso.HybridClock(NOW_MS, 0, NOW_MS)
    assert tso.reserve_near(hybrid, 1, NOW_MS - 1_001, 1_000) == tso.TooFarAhead(1_001)
    assert isinstance(tso.reserve_near(hybrid, 1, NOW_MS - 1_000, 1_000), tso.SaveFirst)


@given(
    st.lists(st.tuples(st.integers(-3_000, 3_000), st.sampled_from([1, 9, 65_536])), max_size=80)
)
def test_no_timestamp_is_further_ahead_than_allowed_whatever_the_clock_does(
    steps: list[tuple[int, int]],
) -> None:
    hybrid, now_ms, newest = fresh(), NOW_MS, 0
    for step_ms, count in steps:
        now_ms += step_ms
        outcome = tso.reserve_near(hybrid, count, now_ms, 1_000)
        if isinstance(outcome, tso.SaveFirst):
            hybrid = tso.granted(hybrid, hybrid.bound_ms, outcome.bound_ms)
            outcome = tso.reserve_near(hybrid, count, now_ms, 1_000)
        if isinstance(outcome, tso.ReservedTicks):
            assert newest < outcome.first
            newest = outcome.first + count - 1
            assert tso.physical_ms_of(TimeTick(newest)) <= now_ms + 1_000
            hybrid = outcome.after
        else:
            assert isinstance(outcome, tso.TooFarAhead)
            assert outcome.ahead_ms > 1_000


def test_half_a_second_and_200_ms_as_distances_of_timestamps() -> None:
    assert tso.compose(500, 0) == 131_072_000
    assert tso.compose(200, 0) == 52_428_800


def test_time_that_flows_saves_the_bound_about_every_half_window() -> None:
    hybrid, saves = fresh(), 0
    for now_ms in range(NOW_MS, NOW_MS + 30_000, 50):  # the period of the reference's update
        due_ms = tso.bound_due(hybrid, now_ms)
        if due_ms is not None:
            saves += 1
            hybrid = tso.granted(hybrid, hybrid.bound_ms, due_ms)
        hybrid = take(hybrid, 1, now_ms).after
    # The first bound is saved at the start.
    assert saves == 30_000 // (tso.WINDOW_MS // 2) - 1


def test_a_crash_loses_at_most_a_window_and_repeats_nothing() -> None:
    hybrid = fresh()
    last = take(hybrid, 10, NOW_MS).first + 9
    restarted = tso.started(hybrid.bound_ms, tso.first_bound(hybrid.bound_ms, NOW_MS))
    first = take(restarted, 1, NOW_MS).first
    assert last < first <= tso.compose(NOW_MS + tso.WINDOW_MS + tso.GUARD_MS, 0)


@pytest.mark.parametrize("count", [0, -1, tso.COUNT_MAX + 1])
def test_a_count_out_of_bounds_is_the_callers_fault(count: int) -> None:
    with pytest.raises(AssertionError):
        tso.reserve(fresh(), count, NOW_MS)


@given(st.lists(st.tuples(st.integers(-3_600_000, 3_600_000), st.integers(0, 5_000)), max_size=30))
def test_smeared_time_never_goes_back_and_is_the_clock_s_as_soon_as_that_is_ahead(
    steps: list[tuple[int, int]],
) -> None:
    time, wall_ms, monotonic_ms = tso.SmearedTime(NOW_MS, 0.0), NOW_MS, 0
    for step_ms, passed_ms in steps:
        wall_ms += step_ms + passed_ms
        monotonic_ms += passed_ms
        later = time.at(wall_ms, monotonic_ms / 1000)
        assert later.ms >= max(time.ms, wall_ms)
        if wall_ms < time.ms:
            assert abs(later.ms - max(wall_ms, time.ms + passed_ms / 2)) < 1
        else:
            assert later.ms <= max(wall_ms, time.ms + passed_ms)
        time = later
