"""Ids over restarts, races and the end of 64 bits, against one list of all ids."""

from itertools import pairwise

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.core.master import id_window
from broker.core.master.id_window import (
    COUNT_MAX,
    FIRST_ID,
    ID_MAX,
    WINDOW,
    IdWindow,
    ReserveFirst,
    TakenIds,
    UsedUp,
)
from broker.ports.id_source import IDS_COUNT_MAX


class IdHolders(RuleBasedStateMachine):
    """Several holders over one durable bound, none of which knows of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.saved = 0
        self.holders: list[IdWindow] = []
        self.ranges: list[tuple[int, int]] = []
        self.newest: dict[int, int] = {}

    @rule()
    def a_process_starts(self) -> None:
        self.holders.append(id_window.opened(self.saved, 0))

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), count=st.sampled_from([1, 2, 1_000, 65_535, 65_536]), dies=st.booleans())
    def ids_are_taken(self, data: st.DataObject, count: int, dies: bool) -> None:
        which = data.draw(st.integers(0, len(self.holders) - 1))
        outcome = id_window.take(self.holders[which], count)
        if isinstance(outcome, ReserveFirst):
            if dies:  # after the write, before its ids are given out
                self.saved = max(outcome.bound, self.saved + WINDOW)
                self.holders[which] = id_window.opened(self.saved, 0)
                return
            self.save(which, outcome.bound)
            outcome = id_window.take(self.holders[which], count)
        assert isinstance(outcome, TakenIds)
        assert outcome.first > self.newest.get(which, 0)
        self.holders[which] = outcome.after
        self.newest[which] = outcome.first + count - 1
        self.ranges.append((outcome.first, outcome.first + count))

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def the_range_is_reserved_ahead(self, data: st.DataObject) -> None:
        which = data.draw(st.integers(0, len(self.holders) - 1))
        due = id_window.bound_due(self.holders[which])
        if due is not None:
            self.save(which, due)

    @invariant()
    def no_id_was_given_out_twice_or_above_the_durable_bound(self) -> None:
        assert all(end <= start for (_, end), (start, _) in pairwise(sorted(self.ranges)))
        assert all(end <= self.saved for _, end in self.ranges)

    def save(self, which: int, wanted: int) -> None:
        before = self.saved
        self.saved = max(wanted, before + WINDOW)
        self.holders[which] = id_window.extended(self.holders[which], before, self.saved)


TestIdHolders = IdHolders.TestCase


def test_the_first_ids_are_above_those_of_counted_collections() -> None:
    assert id_window.opened(0, 0) == IdWindow(FIRST_ID, FIRST_ID)
    assert id_window.opened(0, FIRST_ID + 7).next_id == FIRST_ID + 8


def test_nothing_is_given_out_before_its_bound_is_durable() -> None:
    window = id_window.opened(0, 0)
    assert id_window.take(window, 10) == ReserveFirst(FIRST_ID + 10 + WINDOW)
    window = id_window.extended(window, 0, FIRST_ID + 10 + WINDOW)
    taken = id_window.take(window, 10)
    assert taken == TakenIds(IdWindow(FIRST_ID + 10, FIRST_ID + 10 + WINDOW), FIRST_ID)


def test_a_holder_that_lost_a_race_continues_above_the_other_one() -> None:
    window = IdWindow(FIRST_ID + 5, FIRST_ID + 100)
    after = id_window.extended(window, FIRST_ID + 5_000, FIRST_ID + 9_000)
    assert after == IdWindow(FIRST_ID + 5_000, FIRST_ID + 9_000)


def test_the_bound_is_due_when_half_of_the_range_is_used() -> None:
    assert id_window.bound_due(IdWindow(1, 1 + WINDOW)) is None
    assert id_window.bound_due(IdWindow(1 + WINDOW // 2, 1 + WINDOW)) == 1 + WINDOW // 2 + WINDOW


def test_ids_stay_signed_64_bit_numbers_and_end_there() -> None:
    last = IdWindow(ID_MAX - 9, ID_MAX - 9)
    assert id_window.take(last, 10) == ReserveFirst(ID_MAX + 1)
    reserved = id_window.extended(last, ID_MAX - 9, ID_MAX + 1)
    assert id_window.bound_due(reserved) is None
    taken = id_window.take(reserved, 10)
    assert isinstance(taken, TakenIds)
    assert taken.first + 9 == ID_MAX
    assert id_window.take(taken.after, 1) == UsedUp()
    assert id_window.take(last, 11) == UsedUp()


@pytest.mark.parametrize("count", [0, -1, COUNT_MAX + 1])
def test_a_number_of_ids_out_of_bounds_is_the_callers_fault(count: int) -> None:
    with pytest.raises(AssertionError):
        id_window.take(IdWindow(1, 2), count)


def test_the_port_and_the_core_agree_on_the_most_ids_of_one_request() -> None:
    assert IDS_COUNT_MAX == COUNT_MAX
