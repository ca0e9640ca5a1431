"""A token bucket with debt: the base of every limit of a rate.

What is taken while there are tokens may exceed them: a batch above the burst must pass some time.
The next one waits until the debt is paid. So no rate is exceeded for longer than one batch, and
who came first is served first.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Taken:
    """Begin after `wait_s`."""

    wait_s: float


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Nothing was taken; it is worth to try again after `retry_s`."""

    retry_s: float


class TokenBucket:
    """Full at first. `rate`: tokens a second; `burst`: what it holds at most. Both above 0.

    Times are seconds of any clock that does not go back; an earlier time counts as the last one.
    """

    __slots__ = ("_at_s", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now_s: float) -> None:
        assert rate > 0, rate
        assert burst > 0, burst
        self.rate, self.burst = rate, burst
        self._tokens = burst
        self._at_s = now_s

    def take(self, amount: float, now_s: float, wait_s_max: float) -> Taken | Exhausted:
        """Take the amount if that need not wait longer than `wait_s_max`."""
        wait_s = self.wait_s(now_s)
        if wait_s > wait_s_max:
            return Exhausted(wait_s)
        self._tokens -= amount
        return Taken(wait_s)

    def wait_s(self, now_s: float) -> float:
        """How long one who took something now would have to wait."""
        self._fill(now_s)
        return max(0.0, -self._tokens / self.rate)

    def give_back(self, amount: float) -> None:
        """Undo a `take` of the amount, because another bucket had nothing."""
        self._tokens = min(self.burst, self._tokens + amount)

    def change(self, rate: float, burst: float, now_s: float) -> None:
        """Another rate from now on; a debt stays."""
        self._fill(now_s)
        self.rate, self.burst = rate, burst
        self._tokens = min(self._tokens, burst)

    def _fill(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - self._at_s)
        self._at_s = max(self._at_s, now_s)
        self._tokens = min(self.burst, self._tokens + passed_s * self.rate)
