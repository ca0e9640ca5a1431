"""The gate's last words: what pytest said, and whether anything failed."""

import check
import pytest


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("======== 41 passed in 1.15s ========", "41 passed in 1.15s"),
        (
            "= 1 failed, 4 passed in 61.00s (0:01:01) =",
            "1 failed, 4 passed in 61.00s (0:01:01)",
        ),
        ("3 passed in 0.02s", "3 passed in 0.02s"),
    ],
)
def test_pytests_summary_is_found_in_quiet_and_in_loud_runs(line: str, told: str) -> None:
    found = check._PYTEST_SUMMARY.match(line)
    assert found is not None
    assert found[1] == told


def test_a_failure_of_one_environment_fails_the_gate_and_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcomes = [check.Outcome("lint", 0, 1.0), check.Outcome("tests", 2, 3.0, ["1 failed in 2.9s"])]
    assert check._summary(outcomes) == 1
    *_, words, last = capsys.readouterr().out.splitlines()
    assert words == "tests: 1 failed in 2.9s"
    assert last == "FAILED: tests in 4 s"
