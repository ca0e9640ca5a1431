"""A read-modify-write is repeated as long as others win, and not for ever."""

import pytest

from broker.ports.compare_and_set import retry_conflicts
from broker.ports.meta import Conflict, MetaError


class Attempts:
    """Raises each of `errors` in turn, then returns the number of attempts."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.made = 0

    async def __call__(self) -> int:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.made


async def test_the_first_attempt_without_a_conflict_is_the_result() -> None:
    attempts = Attempts(Conflict("key", 1, 2), Conflict("key", 2, 3))
    assert await retry_conflicts("key", attempts) == 3


async def test_after_the_last_attempt_the_error_names_the_record() -> None:
    attempts = Attempts(*(Conflict("key", 1, 2) for _ in range(9)))
    with pytest.raises(MetaError, match="the record: lost 3 races"):
        await retry_conflicts("the record", attempts, attempts_max=3)
    assert attempts.made == 3


async def test_any_other_error_ends_it_at_once() -> None:
    attempts = Attempts(MetaError("disk full"))
    with pytest.raises(MetaError, match="disk full"):
        await retry_conflicts("key", attempts)
    assert attempts.made == 1
