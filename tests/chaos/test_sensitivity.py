"""A storm notices bugs: some are planted, and the judgement must find them.

All of them, and what came of it: tests/chaos/README.md; one by one:
`python3 scripts/chaos.py --sabotage NAME`.
"""

from pathlib import Path

import pytest

from tests.chaos.storm.run import Options, run_storm
from tests.chaos.storm.sabotages import EVERY

SHORT: dict[str, tuple[float, tuple[str, ...], int, str]] = {
    "stores-repeats": (12.0, ("lose-answers",), 1, "nothing_comes_twice"),
    "half-transactions": (6.0, ("delay",), 2 * EVERY, "transactions_are_whole"),
}
"""Seconds of faults, which ones, how many transactions at least, and who has to notice.

A node leaves a body out of one in `EVERY` transactions of several that it gives to readers; there
are two nodes, and each transaction is read three times in the end.
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
async def test_a_planted_bug_is_noticed(name: str, tmp_path: Path) -> None:
    seconds, faults, txns, checker = SHORT[name]
    options = Options(seed=3, seconds=seconds, faults=faults, nodes=2, sabotage=name, txns=txns)
    report = await run_storm(options, tmp_path)
    assert checker in {it.checker for it in report.violations}
