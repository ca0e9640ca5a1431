"""When a group gets a message."""

import pytest

from broker.core.groups.due_times import due_tick, is_delayed, is_expired, times_refusal
from broker.model.failure import StreamingCode
from broker.model.groups.delivery_times import AHEAD_MS_MAX, DeliveryTimes
from broker.model.ids import TimeTick

NOW_MS = 1_000_000
NOW = due_tick(NOW_MS)


def test_a_message_is_delayed_until_its_time_and_one_of_the_past_is_not() -> None:
    assert is_delayed(DeliveryTimes(NOW_MS + 1), NOW)
    assert not is_delayed(DeliveryTimes(NOW_MS), NOW)
    assert not is_delayed(DeliveryTimes(NOW_MS - 1), NOW)
    assert not is_delayed(DeliveryTimes(ttl_ms=5), NOW)


def test_a_message_expires_when_its_time_to_live_is_over() -> None:
    times = DeliveryTimes(ttl_ms=5)
    assert not is_expired(times, NOW, TimeTick(due_tick(NOW_MS + 5) - 1))
    assert is_expired(times, NOW, due_tick(NOW_MS + 5))
    assert not is_expired(DeliveryTimes(NOW_MS), NOW, due_tick(NOW_MS * 2))


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (DeliveryTimes(NOW_MS + AHEAD_MS_MAX + 1), "deliver_at is 31622400001 ms ahead"),
        (DeliveryTimes(ttl_ms=AHEAD_MS_MAX + 1), "a time to live of 31622400001 ms"),
    ],
)
def test_times_beyond_a_year_are_refused(times: DeliveryTimes, said: str) -> None:
    refusal = times_refusal(times, NOW)
    assert refusal is not None
    assert refusal.code is StreamingCode.INVALID_ARGUMENT
    assert refusal.cause.startswith(said)
    assert "366 days" in refusal.cause


def test_times_up_to_a_year_are_taken() -> None:
    assert times_refusal(DeliveryTimes(NOW_MS + AHEAD_MS_MAX, AHEAD_MS_MAX), NOW) is None
