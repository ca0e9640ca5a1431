"""A short form of `scripts/exactly_once.py`: task, driver and broker are killed, once each."""

from pathlib import Path

import anyio

from tests.spark.exactly_once.run import Run


def test_what_comes_out_of_the_sink_is_what_the_log_says_whatever_is_killed(tmp_path: Path) -> None:
    told: list[str] = []
    report = anyio.run(Run(tmp_path, 1, told.append).run, 3)
    assert report.good, (report, told)
    assert len(report.kills) == 3
