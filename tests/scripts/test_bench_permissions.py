"""The measure of permission checks: of a batch on an open stream, and the first one of a stream."""

from pathlib import Path

import pytest
from benchmark import names
from benchmark.measures.permission_checks import PermissionChecks
from benchmark.results.figures import CHECK, find
from benchmark.results.goals import GOALS
from benchmark.subject import Amount
from benchmark.subjects_apart import apart


def test_each_check_is_measured_and_the_first_of_a_stream_takes_longest() -> None:
    found = {name: values[CHECK] for name, values in PermissionChecks(slices=3).measure().items()}
    assert {*found} == {*names.CHECKS}
    assert found[names.CHECK_FIRST] > found[names.checked(names.APPEND_BATCH)] > 0


@pytest.mark.parametrize("what", [names.APPEND_BATCH, names.PRODUCE_RUN])
def test_each_goal_is_of_a_subject_that_is_measured(tmp_path: Path, what: str) -> None:
    listed = [it.series for it in apart(tmp_path, Amount(1, 1_000, 1.0, 1.0))]
    (goal,) = [it for it in GOALS if it.subject == names.checked(what)]
    assert (goal.limit, goal.unit, goal.at_least) == (1, "µs", False)
    assert find(listed, goal.subject) is not None
