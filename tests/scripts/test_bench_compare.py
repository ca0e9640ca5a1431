"""What changed between two runs: only what is beyond the spread of both, and not the machine."""

import io

import pytest
from benchmark import names
from benchmark.bench import compared
from benchmark.results.compare import (
    BETTER,
    SAME,
    TOO_FEW,
    WORSE,
    Change,
    changes,
    lost,
    summary,
    table,
    unlike,
)
from benchmark.results.figures import CPU, P50, RATE, Round, Series
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

OURS = "Tidemark Produce, 1,000 in flight"
VALUES = st.lists(st.floats(1, 1e6), min_size=2, max_size=5)


def rates(name: str, *values: float, kind: str = "append") -> Series:
    return Series(name, kind, rounds=[Round({RATE: it}) for it in values])


def change(key: str, old: list[float], new: list[float]) -> Change:
    return Change(OURS, key, old, new)


@pytest.mark.parametrize(
    ("old", "new", "rate", "latency"),
    [
        ([100, 110], [109, 130], SAME, SAME),
        ([100, 110], [111, 130], BETTER, WORSE),
        ([100, 110], [80, 99], WORSE, BETTER),
        ([100, 110], [70], TOO_FEW, TOO_FEW),
    ],
)
def test_a_figure_changed_when_the_ranges_do_not_overlap(
    old: list[float], new: list[float], rate: str, latency: str
) -> None:
    assert change(RATE, old, new).verdict == rate
    assert change(P50, old, new).verdict == latency


def test_only_more_than_five_percent_beyond_the_spread_fails() -> None:
    assert not change(RATE, [100, 110], [90, 96]).fails, "4 % below the range"
    assert change(RATE, [100, 110], [90, 94]).fails
    assert not change(CPU, [100, 110], [112, 130]).fails
    assert change(CPU, [100, 110], [116, 130]).fails
    assert not change(RATE, [100, 110], [200, 300]).fails
    assert not change(RATE, [100], [10]).fails, "one round has no spread"
    assert not Change(names.REDIS_APPEND, RATE, [100, 110], [10, 20]).fails, "not ours"


@given(VALUES, VALUES)
def test_a_change_in_one_direction_is_the_opposite_of_the_other(
    old: list[float], new: list[float]
) -> None:
    opposite = {BETTER: WORSE, WORSE: BETTER, SAME: SAME}
    assert change(RATE, new, old).verdict == opposite[change(RATE, old, new).verdict]
    assert change(P50, old, new).verdict == opposite[change(RATE, old, new).verdict]


def test_a_machine_at_half_the_speed_changes_nothing() -> None:
    old = [rates(names.REDIS_APPEND, 100, 110, 90), rates(OURS, 200, 220, 180)]
    new = [rates(names.REDIS_APPEND, 50, 55, 45), rates(OURS, 100, 110, 90)]
    redis, ours = changes(old, new)
    assert (redis.verdict, redis.fails) == (WORSE, False)
    assert (ours.factor, ours.factor_beside) == (0.5, 1.0)
    assert (ours.verdict, ours.fails) == (SAME, False)


def test_a_faster_baseline_alone_changes_nothing() -> None:
    old = [rates(names.REDIS_APPEND, 100, 110), rates(OURS, 200, 220)]
    new = [rates(names.REDIS_APPEND, 300, 330), rates(OURS, 200, 220)]
    assert [it.verdict for it in changes(old, new)] == [BETTER, SAME]


def test_half_of_our_rate_at_the_same_speed_of_the_machine_fails() -> None:
    old = [rates(names.REDIS_APPEND, 100, 110), rates(OURS, 200, 220)]
    new = [rates(names.REDIS_APPEND, 100, 110), rates(OURS, 100, 110)]
    assert [it.fails for it in changes(old, new)] == [False, True]


def test_subjects_of_one_run_alone_are_not_compared_but_named() -> None:
    old, new = [rates("Tidemark a", 1, 2), rates(OURS, 1, 2)], [rates(OURS, 1, 2), rates("b", 3)]
    found = list(changes(old, new))
    assert [it.name for it in found] == [OURS]
    assert lost(old, new) == ["Tidemark a"]
    told = "\n".join(summary(found, lost(old, new)))
    assert "0 better, 0 worse, 1 same; 0 worse by more than 5 %" in told
    assert "only in the old run: Tidemark a" in told
    assert "nothing to compare" in "\n".join(summary([], []))
    many = "\n".join(summary(found, [f"subject {at}" for at in range(7)]))
    assert "only in the old run: subject 0; subject 1;" in many
    assert many.endswith("subject 4, and 2 more")


def test_the_table_fits_into_a_hundred_columns_and_shouts_what_fails() -> None:
    old = [rates(names.REDIS_APPEND, 100, 110), rates(names.some_txns(100), 2e6, 2e6)]
    new = [rates(names.REDIS_APPEND, 100, 110), rates(names.some_txns(100), 1e6, 1e6)]
    out = io.StringIO()
    Console(file=out, width=100).print(table(list(changes(old, new))))
    assert max(map(len, out.getvalue().splitlines())) <= 100
    row = next(it for it in out.getvalue().splitlines() if names.some_txns(100) in it)
    expected = ["rate/s", "0.50", "0.50", "2.0M", "0%", "1.0M", "0%", "WORSE"]
    assert row.removeprefix(names.some_txns(100)).split() == expected
    assert names.REDIS_APPEND not in out.getvalue(), "what is the same is counted, not listed"


def test_a_change_of_a_baseline_is_listed_after_ours_and_counted() -> None:
    old = [rates(names.REDIS_APPEND, 100, 110), rates(OURS, 200, 220)]
    new = [rates(names.REDIS_APPEND, 200, 220), rates(OURS, 100, 110)]
    found = list(changes(old, new))
    out = io.StringIO()
    Console(file=out, width=100).print(table(found))
    assert out.getvalue().index(OURS) < out.getvalue().index(names.REDIS_APPEND)
    assert "1 figures of other servers changed" in "\n".join(summary(found, []))


def test_the_exit_code_says_worse_or_nothing_in_common() -> None:
    console = Console(file=io.StringIO(), width=100)
    redis, fast, slow = (
        rates(names.REDIS_APPEND, 100, 110), rates(OURS, 200, 220), rates(OURS, 100, 110),
    )  # fmt: skip
    assert compared(([redis, fast], {}), ([redis, fast], {}), console) == 0
    assert compared(([redis, fast], {}), ([redis, slow], {}), console) == 1
    assert compared(([redis, fast], {}), ([redis], {}), console) == 2


def test_runs_that_measured_something_else_are_told_apart() -> None:
    old = {"messages": 60_000, "rounds": 5, "machine": {"cpus": 2}}
    assert list(unlike(old, {**old, "rounds": 3})) == [], "fewer rounds have a spread, too"
    assert list(unlike(old, {})) == []
    assert list(unlike({"messages": 1, "machine": None}, {"messages": 1})) == []
    told = list(unlike(old, {"messages": 8_000, "machine": {"cpus": 16}}))
    assert told == [
        "not measured alike: messages of a round 60000 in the old run, 8000 in the new",
        "not measured alike: CPUs 2 in the old run, 16 in the new",
    ]
