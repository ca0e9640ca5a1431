"""Failures in a row: the waits grow to a limit, the tenth is a warning, a success resets both."""

import random

import pytest
from structlog.testing import capture_logs

from actors import Backoff
from broker.coordinator.retries import WARN_AFTER, Retries


def test_each_failure_in_a_row_is_waited_for_longer_up_to_a_limit_until_it_goes_on() -> None:
    retries, chance = Retries(Backoff(0.01, 0.1), "stuck"), random.Random(3)
    assert retries.pause_s(chance) == 0.0
    for whole_s in (0.01, 0.02, 0.04, 0.08, 0.1, 0.1):
        retries.failed("away")
        assert whole_s / 2 <= retries.pause_s(chance) <= whole_s
    retries.succeeded()
    assert (retries.failures, retries.error, retries.pause_s(chance)) == (0, "away", 0.0)


@pytest.mark.parametrize("warn_after", [WARN_AFTER, 2])
def test_failures_are_warnings_once_there_are_many_in_a_row(warn_after: int) -> None:
    retries = Retries(Backoff(), "stuck", warn_after=warn_after, app="a")
    with capture_logs() as lines:
        for number in range(warn_after):
            retries.failed(f"error {number}")
    assert [line["log_level"] for line in lines] == ["debug"] * (warn_after - 1) + ["warning"]
    assert lines[-1] == {
        "event": "stuck",
        "app": "a",
        "attempt": warn_after,
        "error": f"error {warn_after - 1}",
        "log_level": "warning",
    }
