"""When the keys of an identity provider are read again.

Why a pause: a stranger sends tokens of any key ID, and must not make us ask the provider for each.
"""

from dataclasses import dataclass, field
from typing import Final

PAUSE_S: Final = 10.0
"""Between the begins of two reads, whatever asks for the second; less is for what costs nothing."""
RETRY_S: Final = 30.0
"""After a read that failed."""


@dataclass(slots=True)
class KeyRefresh:
    """`period_s`: between reads that nobody asked for. The clock must never go back."""

    period_s: float
    pause_s: float = PAUSE_S
    failing: bool = field(default=False, init=False)
    reading: bool = field(default=False, init=False)
    _begun_s: float | None = field(default=None, init=False)
    _wanted: bool = field(default=False, init=False)

    def want(self, now_s: float) -> bool:
        """Ask for a read because a key is not known.

        True when one runs or is due now, so that it is worth waiting for; False during the pause.
        """
        if self.reading:
            return True
        if self._begun_s is not None and now_s - self._begun_s < self.pause_s:
            return False
        self._wanted = True
        return True

    def due(self, now_s: float) -> bool:
        """Whether the keys should be read now."""
        if self.reading:
            return False
        if self._begun_s is None:
            return True
        since_s = now_s - self._begun_s
        if self._wanted:
            return since_s >= self.pause_s
        return since_s >= (min(RETRY_S, self.period_s) if self.failing else self.period_s)

    def begin(self, now_s: float) -> None:
        """A read begins."""
        self.reading = True
        self._begun_s = now_s
        self._wanted = False

    def end(self, *, failed: bool) -> None:
        """The read has ended."""
        self.reading = False
        self.failing = failed
