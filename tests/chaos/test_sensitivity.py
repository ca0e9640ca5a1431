"""A storm notices bugs: some are planted, and the judgement must find them.

All of them, and what came of it: tests/chaos/README.md; one by one:
`python3 scripts/chaos.py --sabotage NAME`.
"""

from pathlib import Path

import pytest

from tests.chaos.storm.run import Options, run_storm

SHORT: dict[str, tuple[float, tuple[str, ...], str]] = {
    "stores-repeats": (12.0, ("lose-answers",), "nothing_comes_twice"),
    "half-transactions": (6.0, ("delay",), "transactions_are_whole"),
}
"""Seconds of faults, which ones, and who has to notice."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
async def test_a_planted_bug_is_noticed(name: str, tmp_path: Path) -> None:
    seconds, faults, checker = SHORT[name]
    options = Options(seed=3, seconds=seconds, faults=faults, nodes=2, sabotage=name)
    report = await run_storm(options, tmp_path)
    assert checker in {it.checker for it in report.violations}
