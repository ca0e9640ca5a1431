"""Errors that tell a person what happened and a program where."""

import pytest

from actors import (
    ActorDied,
    ActorError,
    AskTimeout,
    Exit,
    ExitKind,
    MailboxFull,
    NameTaken,
    NoSuchActor,
    NotRunning,
    StaleTerm,
    StartInterrupted,
    StartTimeout,
    TooManyRestarts,
)

EVERY = [
    MailboxFull("/a", 3),
    AskTimeout("/a", 1.5),
    ActorDied("/a", 2, Exit(ExitKind.KILLED)),
    StaleTerm("/a", 1, 2),
    NoSuchActor("/a"),
    NotRunning("/a", "waiting", "failed to start: OSError: disk full"),
    NameTaken("/a"),
    StartTimeout("/a", 30.0),
    StartInterrupted("/a"),
    TooManyRestarts("/a", 5, 30.0, "crashed"),
]


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_every_error_names_its_path_and_is_an_actor_error(error: ActorError) -> None:
    assert "/a" in str(error)
    assert isinstance(error, ActorError)


def test_a_death_has_its_reason_as_its_cause() -> None:
    boom = ValueError("boom")
    assert ActorDied("/a", 2, Exit(ExitKind.CRASHED, boom)).__cause__ is boom


def test_who_is_not_running_is_no_such_actor_and_says_why() -> None:
    error = NotRunning("/a", "waiting", "failed to start: OSError: disk full")
    assert isinstance(error, NoSuchActor)
    assert str(error) == "/a: waiting; last error: failed to start: OSError: disk full"
