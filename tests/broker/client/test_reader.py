"""What a reader's queue promises to the program: every batch once, whatever becomes of a step."""

import asyncio
import os
from collections.abc import Sequence
from typing import cast

import anyio
import pytest
from anyio.abc import TaskStatus

from broker.client.errors import ForkedClient
from broker.client.message import Batch, Received
from broker.client.reader import Reader
from broker.client.subscription import Deliver, Subscription
from broker.model.ids import MessageId, TimeTick, VChannelName


class Scripted:
    """Stands where a subscription stands; it hands over a batch for each number it is given."""

    closed_tick = TimeTick(0)

    def __init__(self) -> None:
        self._numbers: asyncio.Queue[tuple[int, asyncio.Task[None] | None]] = asyncio.Queue()

    def hand_over(self, number: int, then_cancel: "asyncio.Task[None] | None" = None) -> None:
        """`then_cancel` is cancelled in the same turn of the loop, before it can look."""
        self._numbers.put_nowait((number, then_cancel))

    async def run(self, deliver: Deliver) -> None:
        while True:
            number, step = await self._numbers.get()
            tick = TimeTick(number)
            payload = str(number).encode()
            message = Received(payload, MessageId(number), tick, "v", None, 2, {})
            await deliver(Batch(VChannelName("v"), None, [message], tick))
            if step is not None:
                step.cancel()

    async def plan(self) -> Sequence[Subscription]:
        return [cast(Subscription, self)]


class Step:
    """One step of a program in a task of its own, cancelled as `asyncio.timeout` would."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.ended = anyio.Event()

    async def take(self, *, task_status: TaskStatus["asyncio.Task[None] | None"]) -> None:
        task_status.started(asyncio.current_task())
        with pytest.raises(asyncio.CancelledError):
            await anext(self._reader)
        self.ended.set()


async def test_a_step_cancelled_as_its_batch_comes_leaves_the_batch_to_the_next_step() -> None:
    scripted = Scripted()
    async with anyio.create_task_group() as tasks:
        async with Reader(scripted.plan, tasks) as reader:
            step = Step(reader)
            task = await tasks.start(step.take)
            await anyio.wait_all_tasks_blocked()
            scripted.hand_over(1, then_cancel=task)
            await step.ended.wait()
            scripted.hand_over(2)
            async with asyncio.timeout(5):
                ticks = [(await anext(reader)).closed_tick for _ in range(2)]
        assert ticks == [1, 2]


async def test_a_message_step_that_ran_out_of_time_may_be_taken_again() -> None:
    scripted = Scripted()
    async with anyio.create_task_group() as tasks, Reader(scripted.plan, tasks) as reader:
        messages = reader.messages()
        with anyio.move_on_after(0.01):
            await anext(messages)
        scripted.hand_over(1)
        async with asyncio.timeout(5):
            assert (await anext(messages)).payload == b"1"


async def test_a_reader_taken_into_a_forked_process_says_so() -> None:
    scripted = Scripted()
    async with anyio.create_task_group() as tasks, Reader(scripted.plan, tasks) as reader:
        child = os.fork()
        if child == 0:
            step = reader.__anext__()
            try:
                step.send(None)
            except ForkedClient:
                os._exit(7)
            finally:
                os._exit(1)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
