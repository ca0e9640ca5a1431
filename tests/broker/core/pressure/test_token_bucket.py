"""A bucket compared with a naive model: what it lets begin, and when."""

from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.pressure.token_bucket import Exhausted, Taken, TokenBucket

RATE, BURST = 64, 128
WAIT = 2.0
# Eighths of a second and whole tokens: sums of them are exact.
STEPS = st.lists(st.tuples(st.integers(0, 32), st.integers(0, 400)), max_size=60)


@dataclass
class Naive:
    """Adds up, from all that was ever taken, what the bucket holds: slow, and plainly right."""

    taken: list[tuple[Fraction, int]] = field(default_factory=list)

    def level(self, now: Fraction) -> Fraction:
        level, at = Fraction(BURST), Fraction(0)
        for when, amount in self.taken:
            level = min(Fraction(BURST), level + (when - at) * RATE) - amount
            at = when
        return min(Fraction(BURST), level + (now - at) * RATE)

    def take(self, now: Fraction, amount: int) -> Taken | Exhausted:
        wait = max(Fraction(0), -self.level(now) / RATE)
        if wait > WAIT:
            return Exhausted(float(wait))
        self.taken.append((now, amount))
        return Taken(float(wait))


@given(STEPS)
def test_the_bucket_answers_as_the_naive_model(steps: list[tuple[int, int]]) -> None:
    bucket, naive, now = TokenBucket(RATE, BURST, 0.0), Naive(), Fraction(0)
    for eighths, amount in steps:
        now += Fraction(eighths, 8)
        assert bucket.take(amount, float(now), WAIT) == naive.take(now, amount)


@given(STEPS)
def test_nothing_begins_before_what_was_taken_earlier_is_paid(
    steps: list[tuple[int, int]],
) -> None:
    bucket, now = TokenBucket(RATE, BURST, 0.0), 0.0
    begun: list[tuple[float, int]] = []
    for eighths, amount in steps:
        now += eighths / 8
        taken = bucket.take(amount, now, WAIT)
        if isinstance(taken, Taken):
            begun.append((now + taken.wait_s, amount))
    assert [it for it, _ in begun] == sorted(it for it, _ in begun), "first come, first served"
    for index, (at, _) in enumerate(begun):
        assert sum(amount for _, amount in begun[:index]) <= BURST + RATE * at + 1e-6


def test_nothing_is_taken_when_the_wait_would_be_too_long() -> None:
    bucket = TokenBucket(10, 10, 0.0)
    assert bucket.take(40, 0.0, 0.0) == Taken(0.0)
    assert bucket.take(5, 0.0, 1.0) == Exhausted(3.0)
    assert bucket.take(5, 3.0, 0.0) == Taken(0.0)


def test_what_is_given_back_was_never_taken() -> None:
    bucket = TokenBucket(10, 10, 0.0)
    bucket.take(30, 0.0, 0.0)
    bucket.give_back(30)
    assert bucket.wait_s(0.0) == 0
    assert bucket.take(10, 0.0, 0.0) == Taken(0.0)
    bucket.give_back(1_000)
    bucket.take(20, 0.0, 0.0)
    assert bucket.wait_s(0.0) == 1.0, "never more than the burst"


def test_a_debt_stays_when_the_rate_changes() -> None:
    bucket = TokenBucket(10, 10, 0.0)
    bucket.take(30, 0.0, 0.0)
    bucket.change(5, 2, 1.0)
    assert bucket.wait_s(1.0) == pytest.approx(2.0)
    bucket.change(100, 2, 100.0)
    bucket.take(4, 100.0, 0.0)
    assert bucket.wait_s(100.0) == pytest.approx(0.02), "the smaller burst holds"


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, 10, 5.0)
    bucket.take(20, 5.0, 0.0)
    assert bucket.wait_s(4.0) == 1.0
    assert bucket.wait_s(5.5) == pytest.approx(0.5)
