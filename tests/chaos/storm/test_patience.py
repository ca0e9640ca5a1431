"""The judge waits while something changes, and no longer."""

import anyio
import anyio.lowlevel
import pytest

from broker.client.errors import DeadlineExceeded
from tests.chaos.storm.patience import asked_again, patient


async def test_a_wait_without_a_change_ends() -> None:
    with patient(still_s=0.01, most_s=60.0) as patience:
        while True:
            patience.saw("the same")
            await anyio.lowlevel.checkpoint()
    assert patience.ran_out
    assert "without a change" in patience.waited


async def test_states_that_come_again_are_no_progress() -> None:
    with patient(still_s=0.01, most_s=60.0) as patience:
        number = 0
        while True:
            number += 1
            patience.saw(number % 2)
            await anyio.lowlevel.checkpoint()
    assert patience.ran_out


async def test_a_wait_ends_however_much_changes() -> None:
    with patient(still_s=60.0, most_s=0.01) as patience:
        number = 0
        while True:
            number += 1
            patience.saw(number)
            await anyio.lowlevel.checkpoint()
    assert patience.ran_out


async def test_what_ends_by_itself_did_not_run_out() -> None:
    with patient() as patience:
        patience.saw("done")
    assert not patience.ran_out


async def test_a_call_whose_client_gave_up_is_asked_again() -> None:
    failures = [DeadlineExceeded("no owner"), DeadlineExceeded("no owner")]

    async def call() -> int:
        if failures:
            raise failures.pop()
        return 7

    assert await asked_again(call) == 7


async def test_a_call_is_asked_again_no_longer_than_the_limit() -> None:
    async def call() -> None:
        raise DeadlineExceeded("no owner")

    with pytest.raises(TimeoutError):
        await asked_again(call, 0.01)
