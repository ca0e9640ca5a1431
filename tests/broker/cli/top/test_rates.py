"""Rates between two answers: right over restarts, moves and outages; and their history."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cli.top.rates import STEP_S, STEPS, Flow, History, Rates
from tests.broker.cli.top.broker_states import LOG, actor, broker_state, traffic


def test_a_rate_is_by_the_clock_of_the_server_that_counts() -> None:
    before = broker_state(at_s=0.0, traffic=(traffic(5000, a_1v0=(1, 100)),))
    now = broker_state(at_s=9.0, traffic=(traffic(7000, a_1v0=(1, 150)),))
    assert Rates.between(before, now).flows == {"a_1v0": Flow(25.0, 2500.0, 25.0, 0.0)}
    assert Rates.between(None, now).flows is None
    assert Rates.between(now, now).flows is None


def test_a_process_that_restarted_is_not_compared_with_what_it_was() -> None:
    before = broker_state(at_s=0.0, traffic=(traffic(5000, "1/7/1", a_1v0=(1, 1000)),))
    now = broker_state(at_s=2.0, traffic=(traffic(100, "1/8/2", a_1v0=(1, 10)),))
    assert Rates.between(before, now).flows is None
    other = traffic(2000, "2/9/1", b_1v0=(1, 10))
    both = [replace(before, traffic=(*before.traffic, replace(other, at_ms=0))),
            replace(now, traffic=(*now.traffic, other))]  # fmt: skip
    assert Rates.between(*both).flows == {"b_1v0": Flow()}


def test_a_vchannel_that_moved_is_the_sum_and_a_new_one_counts_from_zero() -> None:
    before = broker_state(
        at_s=0.0, traffic=(traffic(0, "1", a_1v0=(1, 100)), traffic(0, "2", b_1v0=(1, 5)))
    )
    now = broker_state(
        at_s=2.0,
        traffic=(
            traffic(2000, "1", a_1v0=(1, 120)),
            traffic(1000, "2", b_1v0=(1, 5), a_1v0=(2, 7)),
        ),
    )
    flows = Rates.between(before, now).flows
    assert flows is not None
    assert flows["a_1v0"].messages == 10.0 + 7.0
    assert flows["b_1v0"] == Flow()


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 100), st.integers(0, 100)), max_size=4))
def test_no_counts_whatever_they_are_give_a_rate_below_zero(
    counts: list[tuple[int, int, int]],
) -> None:
    before = broker_state(
        at_s=0.0, traffic=[traffic(0, str(p), a_1v0=(1, first)) for p, first, _ in counts]
    )
    now = broker_state(
        at_s=1.0, traffic=[traffic(1000, str(p), a_1v0=(1, second)) for p, _, second in counts]
    )
    for flow in (Rates.between(before, now).flows or {}).values():
        assert flow.messages >= 0


def test_an_actor_counts_from_its_restart_and_a_new_one_not_at_all() -> None:
    before = broker_state(at_s=8.0)
    appender = replace(broker_state().actors[5], term=2, handled=10)
    after = broker_state(actors=[appender, actor("/root/new", handled=1000)])
    assert Rates.between(before, after).handled == {f"{LOG}/appender": 5.0}
    # Another process, whose actor has reached the same term with fewer messages.
    again = broker_state(actors=[replace(appender, term=1, handled=10)])
    assert Rates.between(before, again).handled == {f"{LOG}/appender": 5.0}


@given(
    st.lists(st.tuples(st.floats(0.1, 30.0), st.floats(0, 1e6), st.booleans()), max_size=20),
    st.floats(0, 1e6),
)
def test_the_history_keeps_every_message_and_leaves_gaps_empty(
    samples: list[tuple[float, float, bool]], start_s: float
) -> None:
    history, at_s, total, gaps = History(), start_s, 0.0, []
    for seconds, rate, measured in samples:
        if measured:
            history.add(at_s + seconds, seconds, {"x": rate})
            total += rate * seconds
        else:
            gaps.append((at_s, at_s + seconds))
        at_s += seconds
        if at_s - start_s > STEPS * STEP_S - 60:
            break
    steps = STEPS + 1
    series = history.series("x", at_s, steps)
    first = int(at_s // STEP_S) - steps + 1
    spans = {step.number: step.seconds for step in history._steps}
    kept = sum((it or 0) * spans.get(first + n, 0) for n, it in enumerate(series))
    assert kept == pytest.approx(total, rel=1e-6, abs=1e-3)
    for begin_s, end_s in gaps:
        for number in range(int(begin_s // STEP_S) + 1, int(end_s // STEP_S)):
            if number >= first:
                assert series[number - first] is None


def test_the_history_is_bounded_whatever_it_is_given() -> None:
    history = History()
    for number in range(1000):
        history.add(number * 60.0, 60.0, {"x": 1.0})
    assert len(history._steps) <= STEPS + 1
    assert history.series("x", 999 * 60.0, 12) == [1.0] * 11 + [None]
    history.add(1e9, 1e8, {"x": 2.0})  # a pause of years costs no more than five minutes
    assert len(history._steps) <= STEPS + 1
