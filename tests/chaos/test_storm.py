"""Faults of every kind over a live cluster, in the short form: what is promised holds.

The long form is `python3 scripts/chaos.py --minutes 30`.
"""

from pathlib import Path

import pytest

from tests.chaos.storm.plan import LASTING_S, make_plan
from tests.chaos.storm.run import Options, run_storm
from tests.chaos.storm.table import table
from tests.chaos.storm.workload import PLACED

OPTIONS = Options(seed=9, seconds=26.0)


def test_the_short_form_has_every_kind_of_fault() -> None:
    assert {it.kind for it in make_plan(OPTIONS.seed, OPTIONS.seconds)} == set(LASTING_S)


@pytest.mark.slow
async def test_whatever_strikes_the_promises_hold(tmp_path: Path) -> None:
    report = await run_storm(OPTIONS, tmp_path)
    assert not report.violations, "\n".join([*table(report), *report.failures()])
    acknowledged = {it.sort for it in report.history.operations if it.places}
    assert acknowledged == PLACED
