"""Tables of the recorded runs of the benchmark, `scripts/benchmark/recorded/*.json`.

Figures of all rounds of all runs are taken together; the goals are told for each run that measured
them.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark.results.figures import CPU, P50, P99, WAKES, Series, find, ratios
from benchmark.results.goals import GOALS, Goal
from benchmark.results.in_kafka_goals import GOALS_IN_KAFKA, QUESTIONS_IN_KAFKA
from benchmark.results.questions import QUESTIONS, Question
from benchmark.results.report import SYNCED, number
from benchmark.results.saved import loaded_with_about

from pages.markdown import table

RECORDED = Path(__file__).parents[1] / "benchmark" / "recorded"
NOTHING = "No run is recorded."

Runs = Sequence[Sequence[Series]]
About = Mapping[str, Any]


def _packages(about: About) -> str:
    found = (about.get("packages") or {}).items()
    return ", ".join([f"{name} {it}" for name, it in found if it])


def _missing(about: About) -> str:
    found = (about.get("missing") or {}).items()
    return "; ".join([f"{name}: {why}" for name, why in found])


FACTS: Mapping[str, Callable[[About], object]] = {
    "made (UTC)": lambda about: str(about.get("made", "")).replace("T", " ").rstrip("Z"),
    "rounds": lambda about: about.get("rounds", ""),
    "messages of each subject and round": lambda about: f"{about.get('messages', 0):,}",
    "CPUs": lambda about: (about.get("machine") or {}).get("cpus", ""),
    "Python": lambda about: (about.get("machine") or {}).get("python", ""),
    "packages": _packages,
    "not measured": _missing,
}


def runs_of(folder: Path = RECORDED) -> Runs:
    """The recorded runs, the oldest first. Raises BadResults with the name of a damaged file."""
    found = [loaded_with_about(path) for path in folder.glob("*.json")]
    return [series for series, _ in sorted(found, key=lambda it: str(it[1].get("made")))]


def speed_runs(folder: Path = RECORDED) -> str:
    """When and on what the runs were made, and what they could not measure."""
    found = [loaded_with_about(path)[1] for path in folder.glob("*.json")]
    abouts = sorted(found, key=lambda it: str(it.get("made")))
    if not abouts:
        return NOTHING
    rows = [(told, *[str(value(it)) or "-" for it in abouts]) for told, value in FACTS.items()]
    return table(["", *[f"run {at}" for at in range(1, len(abouts) + 1)]], rows)


def speed_goals(folder: Path = RECORDED, goals: Sequence[Goal] = GOALS) -> str:
    """Each goal with what each run measured: median, range, met or not."""
    runs = runs_of(folder)
    if not runs:
        return NOTHING
    heads = [
        "",
        "goal",
        *[f"run {at}: median (min to max)" for at in range(1, len(runs) + 1)],
        "verdict",
    ]
    return table(heads, [_goal(goal, runs) for goal in goals])


def speed_runs_compiled() -> str:
    """The same of the runs of the wheel with compiled scanners."""
    return speed_runs(RECORDED / "compiled")


def speed_goals_compiled() -> str:
    """The same of the runs of the wheel with compiled scanners."""
    return speed_goals(RECORDED / "compiled")


def speed_in_kafka() -> str:
    """All about the log in Kafka: the runs, the goals, a table for each question."""
    folder = RECORDED / "kafka"
    told = speed_runs(folder), speed_goals(folder, GOALS_IN_KAFKA)
    return "\n\n".join([*told, speed(folder, QUESTIONS_IN_KAFKA)])


def speed(folder: Path = RECORDED, questions: Sequence[Question] = QUESTIONS) -> str:
    """A table for each question."""
    runs = runs_of(folder)
    found = [text for question in questions if (text := _asked(question, runs))]
    return "\n\n".join(found) or NOTHING


def _goal(goal: Goal, runs: Runs) -> list[str]:
    unit = f" {goal.unit}" if goal.unit else ""
    measured = [goal.measured(run) for run in runs]
    there = [goal.met(it) for it in measured if it]
    met = there.count(True)
    some = f"met in {met} of {len(there)}" if met else "not met"
    verdict = "met" if met == len(there) else some
    cells = [f"{_middle(it)}{unit} ({_range(it)})" if it else "" for it in measured]
    limit = f"{'≥' if goal.at_least else '≤'} {goal.limit:,.3g}{unit}"
    return [goal.row, limit, *cells, verdict if any(measured) else "not measured"]


def _asked(question: Question, runs: Runs) -> str:
    names = list(dict.fromkeys(_names(question, runs)))
    if not [it for it in names if it != question.reference]:
        return ""
    better = "less is better" if question.lower_is_better else "more is better"
    beside = f"; ratio to {question.reference}" if question.reference in names else ""
    columns = _columns(question)
    shown = [(head, [cell(runs, name) for name in names]) for head, cell in columns]
    kept = [(head, cells) for head, cells in shown if any(cells)]
    rows = [(*row[:-1], row[-1] or "-") for row in zip(*[it for _, it in kept], strict=True)]
    made = table([head for head, _ in kept], rows)
    return f"**{question.title}** ({question.unit}, {better}{beside})\n\n{made}"


def _names(question: Question, runs: Runs) -> Iterator[str]:
    for run in runs:
        found = [it.name for it in run if question.holds(it) and it.rounds]
        yield from [it for it in found if it == question.reference]
        yield from found


Cell = Callable[[Runs, str], str]


def _columns(question: Question) -> list[tuple[str, Cell]]:
    key = question.key

    def beside(runs: Runs, name: str) -> list[float]:
        found = [(find(run, name), find(run, question.reference)) for run in runs]
        return [it for mine, other in found if mine for it in ratios(mine, other, key)]

    return [
        ("", lambda _, name: name),
        ("ratio", lambda runs, name: _middle(beside(runs, name))),
        (
            "min to max",
            lambda runs, name: _range(beside(runs, name)) if name != question.reference else "",
        ),
        ("p50" if key == P50 else "median", lambda runs, name: _middle(_values(runs, name, key))),
        *([("p99", _cell(P99))] if key == P50 else []),
        ("CPU, µs", _cell(CPU)),
        ("wake-ups/s", _cell(WAKES)),
        ("synced", _synced),
    ]


def _cell(key: str) -> Cell:
    return lambda runs, name: _middle(_values(runs, name, key))


def _synced(runs: Runs, name: str) -> str:
    found = [it.sync for run in runs if (it := find(run, name))]
    return SYNCED.get(found[0], found[0])


def _values(runs: Runs, name: str, key: str) -> list[float]:
    return [value for run in runs if (it := find(run, name)) for value in it.values(key)]


def _middle(values: Sequence[float]) -> str:
    return number(statistics.median(values)) if values else ""


def _range(values: Sequence[float]) -> str:
    return f"{number(min(values))} to {number(max(values))}" if values else ""
