"""How an incarnation ended."""

from dataclasses import dataclass
from enum import Enum


class ExitKind(Enum):
    """The ways in which an incarnation ends."""

    NORMAL = "stopped by itself"
    SHUTDOWN = "stopped by its supervisor"
    CRASHED = "crashed"
    KILLED = "killed"
    START_FAILED = "failed to start"


@dataclass(frozen=True, slots=True)
class Exit:
    """Why an incarnation ended; `error` is the exception it raised, if any."""

    kind: ExitKind
    error: BaseException | None = None

    def __str__(self) -> str:
        """The kind and the error, for people."""
        if self.error is None:
            return self.kind.value
        return f"{self.kind.value}: {type(self.error).__name__}: {self.error}"
