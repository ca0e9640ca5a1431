"""Counts failures in a row, logs them, and says how long to pause before the next attempt."""

import random
from typing import Any

import structlog

from actors import Backoff

WARN_AFTER = 10
"""From this many failures in a row on, each is a warning: about 5 s with pauses from 10 ms."""

log = structlog.get_logger(__name__)


class Retries:
    """The failures in a row of one actor incarnation.

    `error`: the newest, kept after a success. `what`: the log event, with `named` as its fields.
    """

    def __init__(
        self, backoff: Backoff, what: str, *, warn_after: int = WARN_AFTER, **named: Any
    ) -> None:
        self._backoff = backoff
        self._what = what
        self._warn_after = warn_after
        self._named = named
        self.failures = 0
        self.error = ""

    def failed(self, error: str) -> None:
        """Count a failure and log it."""
        self.failures += 1
        self.error = error
        # Single failures are normal while nodes restart, so they are no warnings.
        tell = log.warning if self.failures >= self._warn_after else log.debug
        tell(self._what, **self._named, attempt=self.failures, error=error)

    def succeeded(self) -> None:
        """Count from 0 again."""
        self.failures = 0

    def pause_s(self, chance: random.Random) -> float:
        """Pause before the next attempt, with jitter; 0 before the first failure."""
        return self._backoff.delay_s(self.failures, chance.random())
