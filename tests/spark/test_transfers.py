"""A short form of `scripts/transfers.py`: every micro-batch is whole, over a kill of the broker.

Without what it is compared with: eight sources in a driver take a minute to start.
"""

from pathlib import Path

import anyio

from tests.spark.transfers.run import Run


def test_every_micro_batch_has_whole_transfers_over_a_kill_of_the_broker(tmp_path: Path) -> None:
    told: list[str] = []
    report = anyio.run(Run(tmp_path, 1, told.append).run, 6, 1, 0)
    assert report.good, (report, told)
    assert report.kills == {"broker": 1}
