"""The benchmark of embedded queues: everything is measured, in slices that do the same work."""

from pathlib import Path

import pytest
from benchmark import names
from benchmark.measures.embedded import EmbeddedQueues
from benchmark.results.figures import RATE
from benchmark.results.goals import GOALS


@pytest.mark.parametrize("size", [1, 7])
def test_all_queues_of_a_round_are_measured_and_given_out_by_name(
    tmp_path: Path, size: int
) -> None:
    found = EmbeddedQueues(tmp_path, size, batches=20).measure()
    assert list(found) == [
        names.bare_batches(size),
        names.rocksmq(size),
        names.rocksmq_tasks(size),
        names.rocksmq_reads(size),
        names.sqlite_queue(size),
    ]
    assert all(values[RATE] > 0 for values in found.values())
    assert not list(tmp_path.iterdir())


def test_the_goal_of_each_size_compares_with_the_bare_loop_of_that_size() -> None:
    goals = [it for it in GOALS if it.subject.startswith("RocksMQ")]
    assert [(it.subject, it.reference, it.limit) for it in goals] == [
        (names.rocksmq(size), names.bare_batches(size), 0.5) for size in names.EMBEDDED_SIZES
    ]
    assert all(it.at_least for it in goals)
