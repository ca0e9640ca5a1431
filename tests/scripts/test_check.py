"""The gate's last words: what pytest said, what took long, and whether anything failed."""

import configparser

import check
import pytest
from environment import ROOT


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("======== 41 passed in 1.15s ========", "41 passed in 1.15s"),
        (
            "= 1 failed, 4 passed in 61.00s (0:01:01) =",
            "1 failed, 4 passed in 61.00s (0:01:01)",
        ),
        ("3 passed in 0.02s", "3 passed in 0.02s"),
        (
            "\x1b[32m======= \x1b[32m\x1b[1m9 passed\x1b[0m in 3.10s =======\x1b[0m",
            "9 passed in 3.10s",
        ),
    ],
)
def test_pytests_summary_is_found_in_quiet_and_in_loud_runs(line: str, told: str) -> None:
    outcome = check.Outcome("tests")
    outcome.note(line + "\n")
    assert outcome.pytest == [told]


def test_a_failure_of_one_environment_fails_the_gate_and_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcomes = [check.Outcome("lint", 0, 1.0), check.Outcome("tests", 2, 3.0, ["1 failed in 2.9s"])]
    assert check._summary(outcomes, 3.6) == 1
    *_, words, last = capsys.readouterr().out.splitlines()
    assert words == "tests: 1 failed in 2.9s"
    assert last == "FAILED: tests in 4 s"


def test_what_failed_tests_said_is_repeated_at_the_end_and_bounded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = check.Outcome("tests", 1)
    for line in (
        "___________ test_it_goes_on[\x1b[31ma b\x1b[0m] ___________",
        "    >       assert total == 3",
        "_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _",
        "E       assert 2 == 3",
        "  | Traceback (most recent call last):",
        "    | broker.client.errors.Unavailable: one of a group",
        "E        +  where 2 = len([])" + "x" * check.FAILURE_WIDTH_MAX,
        "============ short test summary info ============",
        "FAILED tests/wire/test_a.py::test_it_goes_on[a b] - assert 2 == 3",
        "1 failed in 2.00s",
    ):
        outcome.note(line + "\n")
    assert check._summary([outcome], 3.0) == 1
    lines = capsys.readouterr().out.splitlines()
    first = lines.index("tests, what failed:") + 1
    assert lines[first : first + 2] == ["    test_it_goes_on[a b]", "        assert 2 == 3"]
    assert lines[first + 2] == "        broker.client.errors.Unavailable: one of a group"
    assert lines[first + 3].startswith("        +  where 2")
    assert len(lines[first + 3]) == 4 + check.FAILURE_WIDTH_MAX
    assert lines[first + 4] == "    tests/wire/test_a.py::test_it_goes_on[a b] - assert 2 == 3"
    for _ in range(check.FAILURE_LINES_MAX * 2):
        outcome.note("E   again\n")
    assert len(outcome.failures) == check.FAILURE_LINES_MAX


def test_an_environment_that_passed_repeats_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = check.Outcome("tests", 0)
    outcome.note("E   of a test that a plugin ran again\n")
    assert check._summary([outcome], 3.0) == 0
    assert "again" not in capsys.readouterr().out


def test_the_ten_slowest_tests_of_all_environments_are_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    core, tests = check.Outcome("core", 0), check.Outcome("tests", 0)
    for number in range(9):
        core.note(f"{number}.00s call     tests/actors/test_a.py::test_{number}[a b]\n")
        tests.note(f"{number}.50s setup    tests/wire/test_b.py::test_{number}\n")
    assert check._summary([core, tests], 1.0) == 0
    lines = capsys.readouterr().out.splitlines()
    first = lines.index("slowest 10 tests:") + 1
    assert lines[first].split() == ["8.5", "s", "tests/wire/test_b.py::test_8"]
    assert lines[first + 9].split(maxsplit=2) == ["4.0", "s", "tests/actors/test_a.py::test_4[a b]"]
    assert lines[first + 10] == "all passed in 1 s"


def test_every_environment_of_tox_runs_in_one_lane_of_the_gate_or_of_the_quick_checks() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    names = {it.removeprefix("testenv:") for it in tox.sections() if it.startswith("testenv:")}
    names = {it for it in names if not it.startswith(".")}  # those only build wheels
    lanes = [name for lane in check.LANES for name in lane]
    assert sorted(lanes) == sorted({*check.GATE, *check.QUICK}) == sorted(names)
    assert {*check.GATE} == {*tox["tox"]["env_list"].split(", ")}
