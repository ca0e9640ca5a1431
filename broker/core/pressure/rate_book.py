"""The token buckets of all subjects with limits: one call takes from all that concern it, or none.

A bucket is made when its subject first takes something, and forgotten when it is the one of too
many that was used the longest time ago: it would be full again by then.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

from broker.core.pressure.limit_rules import LimitRules, Limits, Subject
from broker.core.pressure.token_bucket import Exhausted, Taken, TokenBucket

BUCKETS_MAX: Final = 16_384
BURST_S: Final = 1.0
"""What a bucket holds, in seconds of its rate."""


class Direction(StrEnum):
    """Appends come in, reads go out; a call is counted as a message without bytes."""

    IN = "in"
    OUT = "out"
    CALL = "call"


class RateBook:
    """The rates of one process. `rules` may be replaced; debts stay."""

    def __init__(self, rules: LimitRules | None = None) -> None:
        self.rules = rules or LimitRules()
        self._buckets: OrderedDict[tuple[Subject, str], TokenBucket] = OrderedDict()

    def take(
        self,
        subjects: Iterable[Subject],
        direction: Direction,
        size_bytes: int,
        messages: int,
        now_s: float,
        wait_s_max: float,
    ) -> Taken | Exhausted:
        """Take bytes and messages of every subject, or nothing when one would wait too long."""
        found = [
            (bucket, amount)
            for subject in subjects
            for bucket, amount in self._of(subject, direction, (size_bytes, messages), now_s)
        ]
        wait_s = max([bucket.wait_s(now_s) for bucket, _ in found], default=0.0)
        if wait_s > wait_s_max:
            return Exhausted(wait_s)
        for bucket, amount in found:
            bucket.take(amount, now_s, wait_s_max)
        return Taken(wait_s)

    def bytes_s(self, subjects: Iterable[Subject], direction: Direction) -> int:
        """The lowest rate of bytes of the subjects; 0: none has one."""
        rates = [_rates(self.rules.of(it), direction)[0] for it in subjects]
        return min([it for it in rates if it], default=0)

    def _of(
        self, subject: Subject, direction: Direction, amounts: tuple[int, int], now_s: float
    ) -> Iterator[tuple[TokenBucket, int]]:
        rates = _rates(self.rules.of(subject), direction)
        for what, rate, amount in zip(("bytes", "messages"), rates, amounts, strict=True):
            if rate:
                yield self._bucket((subject, f"{direction}_{what}"), rate, now_s), amount

    def _bucket(self, key: tuple[Subject, str], rate: int, now_s: float) -> TokenBucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(rate, rate * BURST_S, now_s)
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            if bucket.rate != rate:
                bucket.change(rate, rate * BURST_S, now_s)
        return bucket


def _rates(limits: Limits, direction: Direction) -> tuple[int, int]:
    if direction is Direction.IN:
        return limits.in_bytes, limits.in_messages
    if direction is Direction.OUT:
        return limits.out_bytes, limits.out_messages
    return 0, limits.calls
