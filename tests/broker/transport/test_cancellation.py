"""Tasks that a lost connection wakes, and tasks that are cancelled: at any time also both."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from grpclib.exceptions import StreamTerminatedError

from broker.transport import ServerBatchStream, unary_call
from broker.transport.cancellation import Wakeups
from schemas.generated.tidemark import v1
from tests.broker.transport.echo import CALL, serving

REQUEST = v1.GetCollectionRequest(name="trains")


def own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def started(work: Callable[[], Awaitable[object]]) -> asyncio.Task[object]:
    """A task that waits in its work by now."""

    async def run() -> object:
        return await work()

    task = asyncio.create_task(run())  # noqa: TID251 - the test needs the task itself
    await asyncio.sleep(0)
    return task


async def test_a_task_that_was_woken_raises_the_error_and_is_not_cancelled() -> None:
    wakeups = Wakeups()

    async def work() -> int:
        with pytest.raises(OSError, match="lost"), wakeups:
            await asyncio.sleep(60)
        with pytest.raises(OSError, match="lost"), wakeups:
            raise AssertionError("what is lost stays lost")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(60)
        return own_task().cancelling()

    task = await started(work)
    wakeups.cancel(OSError("lost"))
    wakeups.cancel(OSError("lost"))
    assert await task == 0


@pytest.mark.parametrize("first", ["lost", "cancelled"])
async def test_a_task_that_is_cancelled_as_its_connection_is_lost_is_cancelled(first: str) -> None:
    wakeups = Wakeups()

    async def work() -> None:
        with wakeups:
            await asyncio.sleep(60)

    task = await started(work)
    if first == "cancelled":
        task.cancel()
    wakeups.cancel(OSError("lost"))
    if first == "lost":
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


async def test_a_deadline_that_passes_as_the_connection_is_lost_has_passed() -> None:
    wakeups = Wakeups()

    async def work() -> None:
        async with asyncio.timeout(60) as deadline:
            asyncio.get_running_loop().call_soon(wakeups.cancel, OSError("lost"))
            deadline.reschedule(0)
            with wakeups:
                await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await work()
    assert own_task().cancelling() == 0


async def test_a_cancellation_alone_stays_one() -> None:
    async def work() -> None:
        with Wakeups():
            await asyncio.sleep(60)

    task = await started(work)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


async def test_a_cancellation_from_before_the_wait_is_kept() -> None:
    wakeups = Wakeups()

    async def work() -> int:
        own_task().cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        ready.set()
        with pytest.raises(OSError, match="lost"), wakeups:
            await asyncio.sleep(60)
        return own_task().cancelling()

    ready = anyio.Event()
    task = await started(work)
    await ready.wait()
    wakeups.cancel(OSError("lost"))
    assert await task == 1


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_call_whose_connection_is_closed_leaves_the_cancellations_from_outside(
    cancelled: bool,
) -> None:
    asked = anyio.Event()

    async def silent(stream: ServerBatchStream) -> None:
        await stream.read_batch()
        asked.set()
        await anyio.sleep_forever()

    async with serving(silent) as (_, channel):

        async def work() -> int:
            with pytest.raises(StreamTerminatedError):
                await unary_call(
                    channel, CALL, REQUEST, v1.GetCollectionRequest, metadata={}, deadline_s=60.0
                )
            return own_task().cancelling()

        task = await started(work)
        await asked.wait()
        if cancelled:
            task.cancel()
        channel.close()
        if cancelled:
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            assert await task == 0
