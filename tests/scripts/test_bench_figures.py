"""The arithmetic of the benchmark, and the file it writes for programs."""

import json

import pytest
from benchmark.results.figures import (
    CPU,
    RATE,
    BadResults,
    Round,
    Series,
    as_json,
    find,
    from_json,
    percentile,
    quantiles,
    ratio,
    ratios,
    spread,
    written,
)
from hypothesis import given
from hypothesis import strategies as st

SHARES = st.floats(0.001, 1.0)


def series(name: str, *rates: float, kind: str = "append", unit: str = "msg/s") -> Series:
    found = Series(name, kind, "before answer", unit)
    found.rounds += [Round({RATE: it, "messages": 100}, 0.5, 7_000_000) for it in rates]
    return found


def latencies(name: str, kind: str = "latency, one at a time", **values: float) -> Series:
    return Series(name, kind, "each", rounds=[Round(values)])


@given(st.lists(st.floats(0, 1e6), min_size=1), SHARES)
def test_a_percentile_is_a_value_that_so_many_are_not_above(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(it <= found for it in values) >= share * len(values) - 1e-9
    smaller = [it for it in values if it < found]
    assert len(smaller) < share * len(values) + 1e-9


def test_percentiles_of_a_hundred_are_what_one_expects() -> None:
    values = [it / 1000 for it in range(100, 0, -1)]
    assert quantiles(values) == {"p50_ms": 50.0, "p99_ms": 99.0, "p999_ms": 100.0}
    for values, share in (([], 0.5), ([1.0], 0.0), ([1.0], 1.1)):
        with pytest.raises(ValueError, match="no percentile"):
            percentile(values, share)


def test_two_subjects_are_compared_within_each_round() -> None:
    mine, other = series("mine", 20, 90, 30), series("other", 10, 30, 30)
    assert ratios(mine, other) == [2.0, 3.0, 1.0]
    assert ratio(mine, other) == 2.0
    assert ratio(mine, None) is None
    assert ratio(mine, series("nothing")) is None
    assert ratio(mine, series("fewer", 10)) == 2.0
    assert ratio(mine, series("none passed", 0, 0, 0)) is None
    slow, disk = latencies("slow", p50_ms=3.0), latencies("disk", p50_ms=1.0)
    assert ratio(slow, disk, "p50_ms") == 3.0
    assert ratio(slow, disk, "p99_ms") is None


def test_a_round_without_the_figure_is_not_paired_with_the_next_one() -> None:
    mine, other = series("mine", 20, 90), series("other", 10, 30)
    mine.rounds.insert(1, Round({}))
    other.rounds.insert(1, Round({RATE: 7.0}))
    assert ratios(mine, other) == [2.0, 3.0]


def test_a_spread_is_half_the_range_beside_the_median() -> None:
    assert spread([90.0, 100.0, 130.0]) == pytest.approx(0.2)
    assert spread([5.0, 5.0]) == 0.0
    assert spread([5.0]) is None, "one round has no spread"
    assert spread([]) is None
    assert spread([0.0, 0.0]) is None


def test_what_a_server_used_is_told_for_each_message() -> None:
    it = series("mine", 10, 20)
    assert it.median(CPU) == pytest.approx(5000)
    assert it.peak_bytes() == 7_000_000
    bare = Series("bare", "append", "", rounds=[Round({RATE: 1.0})])
    assert (bare.median(CPU), bare.peak_bytes(), bare.median("p50_ms")) == (None, None, None)


def test_what_was_measured_is_the_same_after_writing_and_reading_it() -> None:
    text = written(as_json([series("a", 500, 800), Series("b", "read")], {"at": 2}))
    assert len(text.splitlines()) == 7, "a line for each subject"
    made = json.loads(text)
    assert made["at"] == 2
    (first, second) = made["subjects"]
    assert first["medians"][RATE] == 650
    assert first["cpu_us_per_message"] == pytest.approx(5000)
    assert second["rounds"] == []
    again = from_json(made)
    assert again == [series("a", 500, 800), Series("b", "read")]
    assert find(again, "nobody") is None


def test_results_of_the_version_before_are_read_too() -> None:
    told = {"rate": 4.0, "messages": 10, "server_cpu_s": None, "server_peak_bytes": None}
    old = {"name": "bare", "kind": "append", "sync": "each", "unit": "msg/s", "reference": None}
    (it,) = from_json({"subjects": [{**old, "medians": {"rate": 4.0}, "rounds": [told]}]})
    assert (it.name, it.values(RATE), it.median(CPU)) == ("bare", [4.0], None)


@pytest.mark.parametrize("made", [{}, [], None, {"subjects": [{}]}, {"subjects": 3}])
def test_what_is_not_a_result_is_refused(made: object) -> None:
    with pytest.raises(BadResults, match="no results of a benchmark"):
        from_json(made)
