"""How an incarnation ended. Owns the vocabulary; never decides what follows from it."""

from dataclasses import dataclass
from enum import Enum


class ExitKind(Enum):
    """The five ways out of a life."""

    NORMAL = "stopped by itself"
    SHUTDOWN = "stopped by its supervisor"
    CRASHED = "crashed"
    KILLED = "killed"
    START_FAILED = "failed to start"


@dataclass(frozen=True, slots=True)
class Exit:
    """Why an incarnation is over; `error` is what it raised, if it raised."""

    kind: ExitKind
    error: BaseException | None = None

    def __str__(self) -> str:
        """A phrase for people: the kind and, after a colon, the error."""
        if self.error is None:
            return self.kind.value
        return f"{self.kind.value}: {type(self.error).__name__}: {self.error}"
