"""What an actor of the coordinator does about failures: waits longer after each, and tells of them.

Owns how many there were in a row. It plans nothing by itself.
"""

import random
from typing import Any

import structlog

from actors import Backoff

WARN_AFTER = 10
"""From here on a failure in a row is worth a warning: doubled from 10 ms, some seconds."""

log = structlog.get_logger(__name__)


class Retries:
    """Of one incarnation. `failures` in a row, and the newest `error`, which is kept beyond them.

    `what` and `named` are what the log calls it.
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
        """Once more, in a row."""
        self.failures += 1
        self.error = error
        tell = log.warning if self.failures >= self._warn_after else log.debug
        tell(self._what, **self._named, attempt=self.failures, error=error)

    def succeeded(self) -> None:
        """It came further: the next failure is a first one again."""
        self.failures = 0

    def pause_s(self, chance: random.Random) -> float:
        """Until the next try; none before the first failure."""
        return self._backoff.delay_s(self.failures, chance.random())
