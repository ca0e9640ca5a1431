"""The measure of TLS: both brokers do the same, one of them behind certificates."""

from pathlib import Path

import pytest
from benchmark import names
from benchmark.measures.secured import Secured
from benchmark.results.figures import P50, RATE, find
from benchmark.results.goals import GOALS
from benchmark.subject import Amount
from benchmark.subjects_apart import apart


def test_each_rate_and_the_latency_are_measured_with_tls_and_without(tmp_path: Path) -> None:
    found = Secured(tmp_path, 4_000, 4_000).measure()
    for what in names.TLS_RATES:
        sent = {found[named(what)]["messages"] for named in (names.plain, names.over_tls)}
        assert len(sent) == 1  # of the same work
        assert found[names.plain(what)][RATE] > 0
        assert found[names.over_tls(what)][RATE] > 0
    assert found[names.plain(names.TLS_ONE)][P50] > 0
    assert found[names.over_tls(names.TLS_ONE)][P50] > 0


@pytest.mark.parametrize("what", [*names.TLS_RATES, names.TLS_ONE])
def test_each_goal_compares_two_subjects_that_are_measured(tmp_path: Path, what: str) -> None:
    listed = [it.series for it in apart(tmp_path, Amount(1, 1_000, 1.0, 1.0))]
    (goal,) = [it for it in GOALS if it.subject == names.over_tls(what)]
    assert goal.reference == names.plain(what)
    assert find(listed, goal.subject) is not None
    assert find(listed, goal.reference) is not None
