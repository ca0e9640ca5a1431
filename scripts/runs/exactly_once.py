"""Kills task, driver and broker under a Spark query with state, and compares every row."""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import anyio

from tests.spark.exactly_once.run import KINDS, NoProgress, Report, Run

SHOWN = 10


def main() -> int:
    """1 when a row is missing or duplicated, or when the run could not find out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, help="keep data, checkpoint and log in this new folder"
    )
    given = parser.parse_args()
    began_s = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {what}", flush=True)

    with tempfile.TemporaryDirectory(prefix="exactly-once-") as folder:
        if given.keep:
            given.keep.mkdir(parents=True)
        run = Run(given.keep or Path(folder), given.seed, say)
        try:
            anyio.run(run.run, given.kills)
        except* NoProgress as failures:
            print(*failures.exceptions, "the query did not recover", sep="\n")
    _show(run.report)
    return int(not run.report.good)


def _show(report: Report) -> None:
    print(f"\n{'killed':10} {'times':>5}   next micro-batch after (s): {'median':>6} {'worst':>6}")
    for kind in KINDS:
        back_s = [it.back_s for it in report.kills if it.kind == kind]
        if back_s:
            print(f"{kind:10} {len(back_s):5} {median(back_s):35.1f} {max(back_s):6.1f}")
    print(
        f"\n{len(report.kills)} kills, {report.drivers} drivers, {report.batches} micro-batches"
        f"\n{report.numbers:,} numbers in the log require {report.asked:,} rows; the sink has"
        f" {report.rows:,} rows"
    )
    for what, rows in (("missing", report.missing), ("duplicated", report.too_many)):
        print(f"{len(rows):,} rows {what}", *rows[:SHOWN], sep="\n  ")
    print("every row exactly once" if report.good else "NOT EXACTLY ONCE")


if __name__ == "__main__":
    sys.exit(main())
