"""What a group may be called and how it may be set."""

import pytest

from broker.core.groups.group_rules import (
    CAUSE_LENGTH_MAX,
    DELIVERIES_MAX,
    DELIVERIES_MIN,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    NACK_MS_MAX,
    lease_refusal,
    limit_refusal,
    nack_refusal,
    name_refusal,
    no_group,
    reject_refusal,
)
from broker.core.groups.schedule_name import SCHEDULE
from broker.model.failure import StreamingCode
from broker.model.groups.consumer_group import DeliveryLimit


@pytest.mark.parametrize("name", ["w", "workers", "a.b-c_d", "_x", "7", "n" * 64])
def test_plain_names_are_taken(name: str) -> None:
    assert name_refusal(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "-x", "a/b", "a b", "a\n", "ä", "n" * 65, "a@b"])
def test_other_names_are_refused_by_name(name: str) -> None:
    refusal = name_refusal(name)
    assert refusal is not None
    assert refusal.code is StreamingCode.INVALID_ARGUMENT
    assert repr(name) in refusal.cause


def test_times_have_limits() -> None:
    assert lease_refusal(LEASE_MS_MIN) is lease_refusal(LEASE_MS_MAX) is None
    assert nack_refusal(0) is nack_refusal(NACK_MS_MAX) is None
    for refusal in (lease_refusal(LEASE_MS_MIN - 1), lease_refusal(LEASE_MS_MAX + 1)):
        assert refusal is not None
    for refusal in (nack_refusal(-1), nack_refusal(NACK_MS_MAX + 1)):
        assert refusal is not None
        assert "delay" in refusal.cause


def test_a_missing_group_is_not_taken_for_a_channel_that_moved() -> None:
    assert no_group("v", "g").code is StreamingCode.UNRECOVERABLE


def test_deliveries_and_causes_have_limits() -> None:
    assert limit_refusal(None) is None
    for good in (DELIVERIES_MIN, DELIVERIES_MAX):
        assert limit_refusal(DeliveryLimit(good, "v", "t")) is None
    for bad in (DELIVERIES_MIN - 1, DELIVERIES_MAX + 1):
        refusal = limit_refusal(DeliveryLimit(bad, "v", "t"))
        assert refusal is not None
        assert str(bad) in refusal.cause
    limit = DeliveryLimit(2, "v", "t")
    assert reject_refusal(limit, "x" * CAUSE_LENGTH_MAX) is None
    assert reject_refusal(limit, "x" * (CAUSE_LENGTH_MAX + 1)) is not None
    assert reject_refusal(None, "bad") is not None


def test_no_program_can_name_a_group_as_the_schedule_is_named() -> None:
    assert name_refusal(SCHEDULE) is not None
