"""The bytes that wait to be appended."""

import pytest

from broker.core.log.backlog import Backlog


def test_what_fits_is_admitted_and_what_does_not_waits_for_a_release() -> None:
    backlog = Backlog(100)
    assert backlog.admit(60)
    assert not backlog.admit(41)
    assert backlog.admit(40)
    backlog.release(60)
    assert backlog.bytes_waiting == 40


def test_one_batch_always_fits_an_empty_backlog() -> None:
    backlog = Backlog(100)
    assert backlog.admit(1_000)
    assert not backlog.admit(1)


def test_releasing_more_than_was_admitted_is_a_broken_invariant() -> None:
    backlog = Backlog(100)
    with pytest.raises(AssertionError):
        backlog.release(1)


def test_a_retired_backlog_holds_nobody_back() -> None:
    backlog = Backlog(100)
    assert backlog.admit(100)
    backlog.retire()
    assert backlog.admit(1_000)
