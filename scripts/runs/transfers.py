"""Moves money while Spark adds up each micro-batch, under kills of broker and driver."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio

from broker.client import TidemarkError
from tests.spark.transfers.run import Report, Run

SHOWN = 10


def main() -> int:
    """0: as promised; 1: a split transfer, nothing to compare with, no progress; 2: interrupted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--batches", type=int, default=40, help="micro-batches; the long form uses 1000"
    )
    parser.add_argument("--kills", type=int, default=2, help="kills of broker and driver in turn")
    parser.add_argument("--beside", type=int, default=20, help="micro-batches to compare with")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, help="keep data, checkpoint and log in this new folder"
    )
    given = parser.parse_args()
    if not 0 <= given.kills < given.batches:
        parser.error(f"--kills {given.kills}: use 0 to one less than --batches {given.batches}")
    if given.beside < 1:
        parser.error(f"--beside {given.beside}: use 1 or more")
    began_s = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {what}", flush=True)

    folder = given.keep or Path(tempfile.mkdtemp(prefix="transfers-"))
    folder.mkdir(parents=True, exist_ok=given.keep is None)
    report, code = None, 2
    try:
        run = Run(folder.resolve(), given.seed, say)
        report = anyio.run(until_ended, run, given.batches, given.kills, given.beside)
    except* (RuntimeError, TidemarkError, TimeoutError) as failed:
        code = 1
        for reason in _reasons(failed):
            print(reason, file=sys.stderr)
    if report is None:
        print("interrupted; nothing is left running", file=sys.stderr)
    else:
        say("done")
        code = show(report)
    if code and not given.keep:
        print(f"data, checkpoints and Spark's output are in {folder}", file=sys.stderr)
    elif not given.keep:
        shutil.rmtree(folder)
    return code


async def until_ended(run: Run, batches: int, kills: int, beside: int) -> Report | None:
    """The report of the run; None when SIGTERM or Ctrl-C ended it."""
    report: Report | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_at_a_signal, tasks.cancel_scope)
        report = await run.run(batches, kills, beside)
        tasks.cancel_scope.cancel()
    return report


async def cancel_at_a_signal(scope: anyio.CancelScope) -> None:
    """Cancel the scope on SIGTERM or Ctrl-C."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()


def _reasons(failed: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for it in failed.exceptions:
        if isinstance(it, BaseExceptionGroup):
            yield from _reasons(it)
        else:
            yield it


def show(report: Report) -> int:
    """Print the report; 0 when transfers were whole, and split where offsets are per vchannel."""
    whole, other = report.whole, report.by_channel
    rows: list[tuple[str, object, object]] = [
        ("", "one offset for all", "one for each vchannel"),
        ("micro-batches", len(whole.batches), len(other.batches)),
        ("  made again after a kill", whole.made_again, other.made_again),
        ("kills of the broker", report.kills["broker"], 0),
        ("kills of the driver", report.kills["driver"], 0),
        ("rows, two a transfer", whole.rows, other.rows),
        ("micro-batches that split a transfer", len(whole.broken), len(other.broken)),
        ("  different when made again", len(whole.changed), len(other.changed)),
        ("  that miss rows of the log", len(report.incomplete), "-"),
    ]
    for name, *values in rows:
        texts = [f"{it:,}" if isinstance(it, int) else str(it) for it in values]
        print(f"{name:36}{texts[0]:>20}{texts[1]:>24}")
    made = ", ".join(f"{count:,} by {how}" for how, count in report.transfers.items())
    print(f"{sum(report.transfers.values()):,} transfers under kills: {made}")
    for numbers in (whole.broken, whole.changed, report.incomplete):
        if numbers:
            print(f"SPLIT: micro-batches {numbers[:SHOWN]}")
    if report.good:
        print("the sum over all vchannels is the same after every micro-batch")
    if not other.broken:
        print("NOTHING TO COMPARE WITH: an offset for each vchannel split no transfer")
    return int(not (report.good and other.broken))


if __name__ == "__main__":
    sys.exit(main())
