"""What the benchmark prints: ratios first, every question, and which goals are met."""

import io

import pytest
from benchmark import names
from benchmark.results.figures import CPU, IDLE, P50, RATE, RESIDENT, TICK, WAKES, Round, Series
from benchmark.results.goals import GOALS, Goal
from benchmark.results.questions import (
    FRAMES,
    IDLE_READER,
    IDLE_SERVER,
    MEMORY,
    ONE_BY_ONE,
    PACED,
    QUESTIONS,
    asked,
)
from benchmark.results.report import WIDTH, goal_row, tables
from rich.console import Console


def rates(name: str, kind: str, *values: float) -> Series:
    rounds = [Round({RATE: it, "messages": 1000}, 0.02, 7_000_000) for it in values]
    return Series(name, kind, "before answer", rounds=rounds)


def latencies(name: str, *p50s: float, **more: float) -> Series:
    rounds = [Round({P50: it, "p99_ms": it * 10, "messages": 100, **more}, 0.03) for it in p50s]
    return Series(name, ONE_BY_ONE, "each message", rounds=rounds)


def some() -> list[Series]:
    return [
        rates("bare write + sync, 64 a group", "append", 1000, 3000),
        rates(names.PRODUCE, FRAMES, 300, 400, 900),
        rates(names.REDIS_APPEND, "append", 100, 200, 300),
        rates("Tidemark append_batch, of 1,000", "append", 1_234_567, 1_234_567),
        latencies(names.ONE, 0.6, 0.9, fresh_p50_ms=20.25, fresh_p99_ms=40.5),
        latencies(names.REDIS_ONE, 0.5, 0.5),
        Series(names.IDLE_BROKER, IDLE_SERVER, rounds=[Round({IDLE: 1.2, WAKES: 326.4})]),
        Series(names.IDLE_BATCHES, IDLE_READER, rounds=[Round({TICK: 80.0})]),
        Series(names.TIDEMARK_RESIDENT, MEMORY, rounds=[Round({RESIDENT: 498.0})]),
        Series("never run", "read", ""),
    ]


def printed(field_of: list[Series]) -> str:
    out = io.StringIO()
    console = Console(file=out, width=WIDTH)
    for table in tables(field_of, {"NATS always": "nats-server is not installed"}):
        console.print(table)
    return out.getvalue()


def test_the_lines_fit_into_a_hundred_columns_and_nothing_is_cut_off() -> None:
    text = printed(some())
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "…" not in text
    assert "nats-server is not installed" in text
    assert "never run" not in text


def test_wake_ups_of_idle_servers_have_a_column_and_nothing_else_has() -> None:
    lines = printed(some()).splitlines()
    (idle,) = [it for it in lines if it.startswith(f"{names.IDLE_BROKER}  ")]
    assert idle.removeprefix(names.IDLE_BROKER).split() == ["1.20", "326"]
    assert sum("wake-ups/s" in it for it in lines) == 1
    (memory,) = [it for it in lines if it.startswith(f"{names.TIDEMARK_RESIDENT}  ")]
    assert memory.split() == ["Tidemark", "498"]


def test_large_ratios_leave_room_for_every_column() -> None:
    slow = "Redis XADD, everysec, 10,000 msg/s"
    more = {"p99_ms": 2_000.0, "messages": 10}
    paced = [
        Series(name, PACED, "each", rounds=[Round({P50: p50, **more}, 9.9, 10**9)] * 2)
        for name, p50 in ((names.DISK_STEP, 0.3), (slow, 1_000.0))
    ]
    text = printed(paced)
    (row,) = [it for it in text.splitlines() if it.startswith(slow)]
    assert row.split()[-1] == "before", "no column is cut"
    assert "3,333" in row


def test_each_subject_is_one_line_that_begins_with_its_ratio() -> None:
    lines = printed(some()).splitlines()
    (produce,) = [it for it in lines if it.startswith(names.PRODUCE)]
    # Ratios of the rounds: 3, 2, 3. Rates: 300, 400, 900. CPU: 20 ms for 1,000 messages.
    fields = produce.removeprefix(names.PRODUCE).split()
    assert fields == ["3.00", "17%", "400", "75%", "20.0", "7", "before"]
    heading = next(it for it in reversed(lines[: lines.index(produce)]) if "ratio: to" in it)
    assert heading.rstrip() == f"messages/s, more is better; ratio: to {names.REDIS_APPEND}"


def test_the_subject_that_others_stand_beside_is_the_first_of_its_question() -> None:
    for question, found in asked(some()):
        if question.reference in [it.name for it in found]:
            assert found[0].name == question.reference
    assert [it.title for it, _ in asked([])] == []


def test_the_goals_stand_at_the_end_with_their_verdicts() -> None:
    lines = printed(some()).splitlines()
    start = next(at for at, it in enumerate(lines) if it.startswith("Goals"))
    rows = {goal.row: line for line in lines[start:] for goal in GOALS if line.startswith(goal.row)}
    assert list(rows) == [goal.row for goal in GOALS], "each goal has one line, in this order"
    assert "1.50" in rows["one awaited append, p50 ÷ Redis always"]
    assert rows["one awaited append, p50 ÷ Redis always"].rstrip().endswith("NOT MET")
    assert lines[start + 1].strip() == f"3 of {len(GOALS)} met, {len(GOALS) - 7} not measured"
    assert rows["idle broker, 16 pchannels, CPU"].rstrip().endswith(" met")
    assert rows["Consume a frame a message ÷ XREAD"].rstrip().endswith("not measured")


@pytest.mark.parametrize(
    ("at_least", "values", "met"),
    [
        (True, [1.0, 1.6, 1.7], True), (True, [1.5, 1.59, 9.0], False),
        (False, [1.0, 1.6, 9.0], True), (False, [1.0, 1.61, 1.7], False), (True, [], None),
    ],
)  # fmt: skip
def test_a_goal_is_met_by_the_median(at_least: bool, values: list[float], met: bool | None) -> None:
    goal = Goal("row", 1.6, "mine", RATE, at_least=at_least)
    assert goal.measured([rates("mine", FRAMES, *values)]) == values
    assert goal.met(values) is met
    assert goal_row(goal, values)[-1] == {True: "met", False: "NOT MET", None: "not measured"}[met]


def test_a_goal_beside_another_subject_takes_the_ratio_of_each_round() -> None:
    goal = Goal("row", 1.1, "mine", CPU, "theirs")
    mine, theirs = rates("mine", FRAMES, 1, 2), rates("theirs", FRAMES, 1, 2)
    assert goal.measured([mine, theirs]) == [1.0, 1.0]
    assert goal.measured([mine]) == []
    assert goal.measured([]) == []


def test_every_goal_is_about_what_a_question_shows() -> None:
    kinds = {it.kind for it in QUESTIONS}
    assert len(kinds) == len(QUESTIONS), "a subject of a kind is told of once"
    assert len({goal.row for goal in GOALS}) == len(GOALS)
