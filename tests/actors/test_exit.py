"""Ends in words."""

from actors import Exit, ExitKind


def test_an_end_without_an_error_reads_as_its_kind() -> None:
    assert str(Exit(ExitKind.KILLED)) == "killed"


def test_an_end_with_an_error_names_it() -> None:
    assert str(Exit(ExitKind.CRASHED, ValueError("boom"))) == "crashed: ValueError: boom"
