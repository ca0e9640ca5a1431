"""The kills of `scripts/exactly_once.py`, in an environment that has Spark. It owns the printing.

Next: tests/spark/exactly_once/run.py
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import anyio

from tests.spark.exactly_once.run import Run

SHOWN = 10


def main() -> int:
    """1 when a row is missing, or there too often."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a new folder for data, checkpoint and log")
    given = parser.parse_args()
    began_s = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {what}", flush=True)

    with tempfile.TemporaryDirectory(prefix="exactly-once-") as folder:
        if given.keep:
            given.keep.mkdir(parents=True)
        run = Run(given.keep or Path(folder), given.seed, say)
        report = anyio.run(run.run, given.kills)
    kills = ", ".join(f"{count} of {kind}" for kind, count in report.kills.items())
    print(
        f"{report.kills.total()} kills ({kills}), {report.drivers} drivers,"
        f" {report.batches} micro-batches: {report.numbers:,} numbers came to {report.rows:,} rows"
    )
    for what, rows in (("missing", report.missing), ("there too often", report.too_many)):
        print(f"{len(rows)} rows {what}", *rows[:SHOWN], sep="\n  ")
    print("each row is there once" if report.good else "NOT EXACTLY ONCE")
    return int(not report.good)


if __name__ == "__main__":
    sys.exit(main())
