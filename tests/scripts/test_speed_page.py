"""The tables of the page about speed: from recorded runs, never typed."""

from pathlib import Path

import pytest
from benchmark import names
from benchmark.results.figures import (
    P50,
    RATE,
    BadResults,
    Round,
    Series,
    as_json,
    written,
)
from benchmark.results.goals import GOALS
from benchmark.results.questions import FRAMES, GROUPS, ONE_BY_ONE
from pages.speed import NOTHING, RECORDED, runs_of, speed, speed_goals, speed_runs


def run(*rates: float, p50: float) -> list[Series]:
    return [
        Series(names.REDIS_APPEND, "append", "each command", rounds=[Round({RATE: 100.0})] * 3),
        Series(
            names.PRODUCE, FRAMES, "before answer",
            rounds=[Round({RATE: it, "messages": 1000}, 0.02) for it in rates],
        ),
        Series(names.ONE, ONE_BY_ONE, rounds=[Round({P50: p50, "p99_ms": 4 * p50})] * 3),
        Series(names.REDIS_ONE, ONE_BY_ONE, rounds=[Round({P50: 0.4, "p99_ms": 1.0})] * 3),
        Series("NATS publish, sync always, 10,000 msg/s", "latency at a rate"),
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Named against the order of their days.
    about = {"rounds": 3, "messages": 60_000, "machine": {"cpus": 2, "python": "3.11.7"}}
    for name, made, measured, missing in (
        ("b", "2026-11-23T01:02:03Z", run(150, 170, 250, p50=0.5), {"Kafka": "no Java"}),
        ("a", "2026-11-23T05:06:07Z", run(110, 120, 130, p50=0.6), {}),
    ):
        told = {"made": made, **about, "missing": missing, "packages": {"rstream": "1.1.1"}}
        (tmp_path / f"{name}.json").write_text(written(as_json(measured, told)))
    return tmp_path


def lines_with(text: str, start: str) -> list[list[str]]:
    found = [it for it in text.splitlines() if it.startswith(f"| {start} |")]
    return [[cell.strip() for cell in it.strip("|").split("|")] for it in found]


def test_a_goal_is_told_for_each_run(folder: Path) -> None:
    text = speed_goals(folder)
    (produce,) = lines_with(text, "Produce a frame a message ÷ Redis always")
    assert produce[1:] == ["≥ 1.6", "1.70 (1.50 to 2.50)", "1.20 (1.10 to 1.30)", "met in 1 of 2"]
    (one,) = lines_with(text, "one awaited append, p50 ÷ Redis always")
    assert one[1:] == ["≤ 1.3", "1.25 (1.25 to 1.25)", "1.50 (1.50 to 1.50)", "met in 1 of 2"]
    (consume,) = lines_with(text, "Consume a frame a message ÷ XREAD")
    assert consume[2:] == ["", "", "not measured"]
    assert len(text.splitlines()) == 2 + len(GOALS)


def test_a_run_that_did_not_measure_a_goal_is_no_miss(folder: Path) -> None:
    about = {"rounds": 3, "messages": 60_000, "made": "2026-11-24T01:02:03Z"}
    group = [
        Series(names.REDIS_GROUP, GROUPS, rounds=[Round({RATE: 100}, 0.02)] * 3),
        Series(names.GROUP, GROUPS, rounds=[Round({RATE: 500}, 0.02)] * 3),
    ]
    (folder / "c.json").write_text(written(as_json(group, about)))
    (row,) = lines_with(speed_goals(folder), "group, take + ack ÷ XREADGROUP + XACK")
    assert row[1:] == ["≥ 3", "", "", "5.00 (5.00 to 5.00)", "met"]


def test_the_rounds_of_all_runs_stand_in_one_row(folder: Path) -> None:
    text = speed(folder)
    (produce,) = lines_with(text, names.PRODUCE)
    assert produce[1:] == ["1.40", "1.10 to 2.50", "140", "20.0", "before"]
    assert len(lines_with(text, names.REDIS_APPEND)) == 1
    heads = next(it for it in text.splitlines() if it.startswith("|  | ratio") and "p50" in it)
    assert heads == "|  | ratio | min to max | p50 | p99 |", "no column without a figure"
    assert "NATS publish, sync always, 10,000" not in text
    assert "(messages/s, more is better; ratio to Redis XADD, always)" in text


def test_the_runs_are_told_in_the_order_of_their_days(folder: Path) -> None:
    text = speed_runs(folder)
    (made,) = lines_with(text, "made (UTC)")
    assert made[1:] == ["2026-11-23 01:02:03", "2026-11-23 05:06:07"]
    (missing,) = lines_with(text, "not measured")
    assert missing[1:] == ["Kafka: no Java", "-"]
    (packages,) = lines_with(text, "packages")
    assert packages[1:] == ["rstream 1.1.1", "rstream 1.1.1"]


def test_nothing_recorded_is_said_and_a_damaged_file_named(tmp_path: Path) -> None:
    assert {speed(tmp_path), speed_goals(tmp_path), speed_runs(tmp_path)} == {NOTHING}
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(BadResults, match=r"bad\.json is not JSON"):
        speed(tmp_path)


def test_every_recorded_run_measured_the_goals() -> None:
    for measured in runs_of(RECORDED):
        assert any(goal.measured(measured) for goal in GOALS)
