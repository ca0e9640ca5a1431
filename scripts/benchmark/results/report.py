"""Writes the results as lines of at most 100 columns: a line a subject, its ratio first."""

import statistics
from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmark.results.figures import CPU, P50, P99, WAKES, Series, find, ratios, spread
from benchmark.results.goals import GOALS, Goal
from benchmark.results.questions import QUESTIONS, Question, asked

WIDTH = 100
OTHERS = "bare", "Redis", "NATS", "Kafka", "RabbitMQ"
SYNCED = {
    "before answer": "before",
    "after answer": "after",
    "each": "before",
    "each command": "before",
    "each message": "before",
    "every second": "1 s",
    "every 2 min": "2 min",
    "by the system": "later",
}
"""When a message is on disk, seen from its answer: in short."""
AGES = ("fresh_p50_ms", "fresh_p99_ms")
"""The age of the newest closed tick of the reader, meanwhile."""
LEGEND = (
    "Messages of 1 KiB. ratio: to the subject named above, in the same round (median). ±: half\n"
    "the range of the rounds. CPU: of the server, for each message. synced: when it is on disk,\n"
    "before or after its answer; later: when the operating system writes it. wake-ups: how\n"
    "often threads of the server began to wait. cache: the setting tail_total_bytes_max."
)


def tables(
    field_of: Sequence[Series],
    missing: Mapping[str, str],
    questions: Sequence[Question] = QUESTIONS,
    goals: Sequence[Goal] = GOALS,
) -> Iterator[Table]:
    """A table for each question, one of what is missing, and the goals if one was measured."""
    for question, found in asked(field_of, questions):
        yield _table(question, found)
    if missing:
        yield _missing(missing)
    if any(goal.measured(field_of) for goal in goals):
        yield _goals(field_of, goals)


def console(width: int = WIDTH) -> Console:
    """A console of the width that the tables are made for, on any terminal."""
    return Console(width=width)


def _table(question: Question, found: Sequence[Series]) -> Table:
    reference = find(found, question.reference)
    beside = f"; ratio: to {reference.name}" if reference else ""
    better = "less is better" if question.lower_is_better else "more is better"
    table = _plain(question.title, f"{question.unit}, {better}{beside}")
    paced = question.key == P50
    has_cpu, has_wakes = _has(found, CPU), _has(found, WAKES)
    has_sync = any(it.sync for it in found)
    table.add_column("", min_width=40 if has_cpu else 62 - 9 * has_wakes + 7 * (not has_sync))
    headings = ["ratio", "±", "median", "±", *["p99"] * paced, *["CPU µs", "peak MB"] * has_cpu]
    for heading in [*headings, *["wake-ups/s"] * has_wakes]:
        table.add_column(heading, justify="right", no_wrap=True)
    if has_sync:
        table.add_column("synced", no_wrap=True)
    for it in found:
        values, beside_it = it.values(question.key), ratios(it, reference, question.key)
        row = [_middle(beside_it), "" if it is reference else _spread(beside_it)]
        row += [number(it.median(question.key)), _spread(values)]
        row += [number(it.median(P99))] * paced
        row += [_text(it.median(CPU), ",.1f"), _text(_megabytes(it), ",.0f")] * has_cpu
        row += [_text(it.median(WAKES), ",.0f")] * has_wakes
        table.add_row(it.name, *row, *[SYNCED.get(it.sync, it.sync)] * has_sync)
        age = [number(it.median(key)) for key in AGES]
        if any(age):
            table.add_row("  age of the closed tick", "", "", age[0], "", age[1])
    return table


def _goals(field_of: Sequence[Series], goals: Sequence[Goal]) -> Table:
    table = _plain("Goals: the cost of one message", goals_met(field_of, goals))
    table.add_column("", min_width=50)
    for heading in ("goal", "median", "min-max"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for goal in goals:
        table.add_row(*goal_row(goal, goal.measured(field_of)))
    return table


def goals_met(field_of: Sequence[Series], goals: Sequence[Goal] = GOALS) -> str:
    """How many goals are met, and how many were not measured."""
    verdicts = [goal.met(goal.measured(field_of)) for goal in goals]
    told = f"{verdicts.count(True)} of {len(verdicts)} met"
    missing = verdicts.count(None)
    return f"{told}, {missing} not measured" if missing else told


def goal_row(goal: Goal, found: Sequence[float]) -> tuple[str, ...]:
    """A goal's line: its name, the limit, what was measured, the range, met or not."""
    unit = f" {goal.unit}" if goal.unit else ""
    limit = f"{'≥' if goal.at_least else '≤'} {goal.limit:,.3g}{unit}"
    if not found:
        return goal.row, limit, "", "", "not measured"
    low, high = min(found), max(found)
    verdict = "met" if goal.met(found) else "NOT MET"
    return (
        goal.row, limit, f"{number(statistics.median(found))}{unit}",
        f"{number(low)}-{number(high)}", verdict,
    )  # fmt: skip


def _missing(missing: Mapping[str, str]) -> Table:
    table = _plain("Not measured", "what did not start, failed, or could not keep up")
    table.add_column("")
    table.add_column("why")
    for name, why in missing.items():
        table.add_row(name, why)
    return table


def _has(found: Sequence[Series], key: str) -> bool:
    return any(it.median(key) is not None for it in found)


def _plain(title: str, more: str) -> Table:
    return Table(
        title=Text.assemble((title, "bold"), "\n", more),
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )


def _megabytes(it: Series) -> float | None:
    peak_bytes = it.peak_bytes()
    return None if peak_bytes is None else peak_bytes / 1e6


def _middle(values: Sequence[float]) -> str:
    return number(statistics.median(values)) if values else ""


def _spread(values: Sequence[float]) -> str:
    found = spread(values)
    return "" if found is None else f"{found:.0%}"


def number(value: float | None) -> str:
    """Three digits that matter, without a fraction from a hundred on."""
    if value is None:
        return ""
    places = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{places}f}"


def _text(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
