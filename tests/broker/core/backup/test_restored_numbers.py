"""Numbers of a restored cluster, against everything that the old one gave out."""

from hypothesis import given
from hypothesis import strategies as st

from broker.core.backup.restored_numbers import (
    JUMP,
    counter_after,
    ids_after,
    term_after,
    tick_bound_after,
)
from broker.core.master import id_window
from broker.core.time import tso
from broker.model.ids import Term, TimeTick

after_backup = st.integers(0, JUMP - 1)
"""How often a cluster counted between its backup and its end."""


@given(st.integers(0, 1 << 40), st.lists(after_backup, max_size=5))
def test_no_counter_repeats_what_was_given_out_over_any_number_of_restores(
    number: int, lives: list[int]
) -> None:
    highest = number
    for counted in lives:
        highest = max(highest, number + counted)
        number = counter_after(number) + 1  # the next start takes the next number
        assert number > highest


@given(st.integers(0, 1 << 60), after_backup, st.integers(0, 100))
def test_no_id_repeats_whatever_was_given_out_over_all_starts_after_the_backup(
    bound: int, starts: int, taken: int
) -> None:
    old = id_window.opened(bound + starts * id_window.WINDOW, 0)
    assert id_window.opened(ids_after(bound), 0).next_id > old.next_id + taken


@given(st.integers(1, 1 << 40), st.integers(0, 100), after_backup)
def test_a_term_is_above_its_record_and_its_log(record: int, ahead: int, later: int) -> None:
    term = term_after(Term(record), Term(record + ahead))
    assert term > record + later
    assert term > record + ahead


@given(
    *(st.integers(0, 1 << 41) for _ in range(2)), st.integers(0, 1 << 41), st.integers(0, 1 << 18)
)
def test_ticks_continue_above_the_bound_the_tick_and_the_clock(
    saved_ms: int, now_ms: int, tick_ms: int, logical: int
) -> None:
    tick = TimeTick((tick_ms << 18) + min(logical, (1 << 18) - 1))
    bound_ms = tick_bound_after(saved_ms, tick, now_ms)
    first = tso.compose(tso.started(bound_ms, tso.first_bound(bound_ms, 0)).physical_ms, 0)
    assert first > tick
    assert tso.physical_ms_of(first) > max(saved_ms, now_ms)
