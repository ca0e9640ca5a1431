"""The errors that the runtime raises.

An error that an actor passes to `Envelope.fail` is raised to its caller unchanged.
"""

from actors.exit import Exit


class ActorError(Exception):
    """Base of the runtime's errors."""


class PlannedRestart(Exception):
    """Raised by an actor to be restarted; logged without a traceback.

    For supervisors and callers it is a crash like any other.
    """


class MailboxFull(ActorError):
    """The mailbox is full, and the policy (or `tell`) does not wait, or the wait timed out."""

    def __init__(self, path: str, bound: int) -> None:
        super().__init__(f"the mailbox of {path} is full ({bound} messages wait)")
        self.path = path
        self.bound = bound


class AskTimeout(ActorError):
    """No answer within the deadline. The message may still be handled; its answer is dropped."""

    def __init__(self, path: str, deadline_s: float) -> None:
        super().__init__(f"{path} did not answer within {deadline_s} s")
        self.path = path
        self.deadline_s = deadline_s


class ActorDied(ActorError):
    """The incarnation has ended, by `reason`. Whether it handled the message is unknown."""

    def __init__(self, path: str, term: int, reason: Exit) -> None:
        super().__init__(f"{path} of term {term} is dead: {reason}")
        self.path = path
        self.term = term
        self.reason = reason
        self.__cause__ = reason.error


class StaleTerm(ActorError):
    """The reference belongs to an older incarnation; `current` is the newest term."""

    def __init__(self, path: str, term: int, current: int) -> None:
        super().__init__(f"{path} is at term {current}; the reference is of term {term}")
        self.path = path
        self.term = term
        self.current = current


class NoSuchActor(ActorError):
    """The tree has no such path."""

    def __init__(self, path: str, detail: str = "no such actor") -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path


class NotRunning(NoSuchActor):
    """The path is known, but no incarnation runs: it waits for its restart, or has ended."""

    def __init__(self, path: str, state: str, last_error: str) -> None:
        super().__init__(path, f"{state}; last error: {last_error or 'none'}")
        self.state = state
        self.last_error = last_error


class NameTaken(ActorError):
    """The supervisor already has a child of this name."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} exists already")
        self.path = path


class StartTimeout(ActorError):
    """Term, build and `started` together took longer than `start_deadline_s`."""

    def __init__(self, path: str, deadline_s: float) -> None:
        super().__init__(f"{path} did not start within {deadline_s} s")
        self.path = path
        self.deadline_s = deadline_s


class StartInterrupted(ActorError):
    """The supervisor was asked to stop while it was starting this child."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the start of {path} was interrupted: its supervisor stops")
        self.path = path


class TooManyRestarts(ActorError):
    """A supervisor failed: more than `restarts_max` restarts within its window."""

    def __init__(self, path: str, restarts_max: int, window_s: float, last: str) -> None:
        super().__init__(
            f"{path} failed: more than {restarts_max} restarts in {window_s} s; the last: {last}"
        )
        self.path = path
