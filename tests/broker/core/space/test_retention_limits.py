"""Which limits the retention of a collection may have."""

import pytest

from broker.core.space.retention_limits import (
    RETENTION_BYTES_MAX,
    RETENTION_BYTES_MIN,
    RETENTION_MS_MAX,
    RETENTION_MS_MIN,
    changed_retention,
)
from broker.model.failure import Refused, StreamingCode
from broker.model.retention.policy import Retention

BEFORE = Retention(bytes_max=1 << 20, age_ms_max=60_000)


def test_a_limit_that_is_not_named_stays_and_minus_one_removes_it() -> None:
    assert changed_retention("c", BEFORE, None, None) == BEFORE
    assert changed_retention("c", BEFORE, 5000, None) == Retention(1 << 20, 5000)
    assert changed_retention("c", BEFORE, None, 1 << 30) == Retention(1 << 30, 60_000)
    assert changed_retention("c", BEFORE, -1, None) == Retention(1 << 20, 0)
    assert changed_retention("c", BEFORE, -1, -1).keeps_all


@pytest.mark.parametrize("limit", [RETENTION_MS_MIN, RETENTION_MS_MAX])
def test_the_least_and_the_most_milliseconds_are_allowed(limit: int) -> None:
    assert changed_retention("c", BEFORE, limit, None).age_ms_max == limit


@pytest.mark.parametrize("limit", [RETENTION_BYTES_MIN, RETENTION_BYTES_MAX])
def test_the_least_and_the_most_bytes_are_allowed(limit: int) -> None:
    assert changed_retention("c", BEFORE, None, limit).bytes_max == limit


@pytest.mark.parametrize("limit", [0, 1, -2, RETENTION_MS_MIN - 1, RETENTION_MS_MAX + 1, 1 << 62])
def test_any_other_number_of_milliseconds_is_refused_with_what_to_do(limit: int) -> None:
    with pytest.raises(Refused, match=f"'c': retention_ms is {limit}; it must be 1000 to") as found:
        changed_retention("c", BEFORE, limit, None)
    assert found.value.refusal.code is StreamingCode.INVALID_ARGUMENT
    assert ("purge" in found.value.refusal.cause) == (limit == 0)


@pytest.mark.parametrize("limit", [0, -2, RETENTION_BYTES_MIN - 1, RETENTION_BYTES_MAX + 1])
def test_any_other_number_of_bytes_is_refused(limit: int) -> None:
    with pytest.raises(Refused, match=f"'c': retention_bytes is {limit}; it must be 65536 to"):
        changed_retention("c", BEFORE, None, limit)
