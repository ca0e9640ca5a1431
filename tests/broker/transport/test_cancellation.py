"""The cancellation count of a task that grpclib woke by cancelling it."""

import asyncio

import pytest

from broker.transport import restored_cancellation


def _task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _cancelled_and_lost() -> None:
    _task().cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        raise OSError("lost") from None


async def test_an_error_that_replaced_a_cancellation_leaves_the_count_as_it_was() -> None:
    with pytest.raises(OSError, match="lost"), restored_cancellation():
        await _cancelled_and_lost()
    assert _task().cancelling() == 0


async def test_a_real_cancellation_keeps_its_count() -> None:
    async def work() -> None:
        with restored_cancellation():
            await asyncio.sleep(60)

    task = asyncio.create_task(work())  # noqa: TID251 - the test needs the task itself
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


async def test_a_cancellation_from_before_the_block_is_kept() -> None:
    _task().cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(0)
    with pytest.raises(OSError, match="lost"), restored_cancellation():
        raise OSError("lost")
    assert _task().cancelling() == 1
    _task().uncancel()
