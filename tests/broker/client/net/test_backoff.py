"""Back-off: 100 ms to 10 s, doubling, with jitter."""

from hypothesis import given
from hypothesis import strategies as st

from broker.client.net.backoff import Backoff


def test_the_first_try_does_not_wait() -> None:
    assert Backoff().delay_s(1) == 0


def test_delays_double_from_100_ms_to_10_s() -> None:
    backoff = Backoff()
    delays = []
    for _ in range(9):
        backoff = backoff.failed()
        delays.append(backoff.delay_s(1))
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]


def test_success_starts_over() -> None:
    assert Backoff().failed().failed().succeeded() == Backoff()


@given(st.integers(1, 100), st.floats(0, 1))
def test_the_spread_takes_off_half_at_most(failures: int, spread: float) -> None:
    backoff = Backoff(failures=failures)
    assert backoff.delay_s(1) / 2 <= backoff.delay_s(spread) <= backoff.delay_s(1) <= 10
