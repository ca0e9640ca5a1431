"""Exponential back-off with a limit and jitter.

Pure: the caller keeps the time and brings the randomness. The defaults are those of Milvus's
clients (100 ms to 10 s), so that all clients of one broker behave alike after it restarts.
"""

from dataclasses import dataclass, replace

FIRST_MS = 100
MAX_MS = 10_000
FOLLOWED_MS_MAX = 2_000
"""For streams that appends and readers wait for: a channel that moves is soon served again."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """After `failures` failed attempts in a row."""

    first_ms: int = FIRST_MS
    max_ms: int = MAX_MS
    failures: int = 0

    def failed(self) -> "Backoff":
        return replace(self, failures=self.failures + 1)

    def succeeded(self) -> "Backoff":
        return replace(self, failures=0) if self.failures else self

    def delay_s(self, spread: float) -> float:
        """Seconds to wait now; 0 before the first failure.

        `spread` in [0, 1) is the jitter: it chooses between half the delay and all of it.
        """
        assert 0 <= spread <= 1, spread
        if self.failures == 0:
            return 0.0
        # The shift is bounded: a server may be away for thousands of attempts.
        doubled_ms = self.first_ms << min(self.failures - 1, 20)
        return min(doubled_ms, self.max_ms) / 1000 * (0.5 + spread / 2)
