"""Faults of every kind over a live cluster, in their short form: what is promised holds.

The long form is `python3 scripts/chaos.py --minutes 30`.
"""

from pathlib import Path

from tests.chaos.storm.run import Options, run_storm
from tests.chaos.storm.table import table

SECONDS = 18.0
PROCESSES = ("kill-node", "stop-node", "kill-coordinator", "kill-actor", "stop-coordinator")
SURROUNDINGS = ("cut", "silence", "delay", "quota", "slow-disk", "kill-actor")


async def test_whatever_is_killed_or_stopped_the_promises_hold(tmp_path: Path) -> None:
    await weather(Options(5, SECONDS, PROCESSES), tmp_path)


async def test_whatever_happens_to_links_and_disk_the_promises_hold(tmp_path: Path) -> None:
    await weather(Options(6, SECONDS, SURROUNDINGS), tmp_path)


async def weather(options: Options, folder: Path) -> None:
    report = await run_storm(options, folder)
    assert not report.violations, "\n".join([*table(report), *report.failures()])
    assert report.struck.total() >= 3
    acknowledged = {it.sort for it in report.history.operations if it.places}
    assert acknowledged == {"append", "batch", "txn", "broadcast"}
