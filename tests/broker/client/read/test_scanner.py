"""A scanner returns every batch once, also over cancelled steps; and how it ends."""

import asyncio
import gc
import os
import warnings
from collections.abc import Sequence

import anyio
import pytest
from anyio.abc import TaskStatus

from broker.client.errors import ClosedClient, ForkedClient, Unrecoverable
from broker.client.message import Batch, Received
from broker.client.read.deliveries import Deliveries
from broker.client.read.scanner import Scanner
from broker.model.ids import MessageId, TimeTick, VChannelName

END, REFUSED = 0, -1
GUARD_S = 60.0


class Scripted:
    """A source that delivers one batch for each number it is given."""

    channels = ("v",)

    def __init__(self) -> None:
        self._numbers: asyncio.Queue[tuple[int, asyncio.Task[None] | None]] = asyncio.Queue()
        self.planned, self.ended = asyncio.Event(), asyncio.Event()
        self.planned.set()

    def hand_over(self, number: int, then_cancel: "asyncio.Task[None] | None" = None) -> None:
        """`then_cancel` is cancelled in the same turn of the loop, before it can look."""
        self._numbers.put_nowait((number, then_cancel))

    async def run(self, deliveries: Deliveries[Batch]) -> None:
        try:
            await self._deliver(deliveries)
        finally:
            self.ended.set()

    async def _deliver(self, deliveries: Deliveries[Batch]) -> None:
        while True:
            number, step = await self._numbers.get()
            if number == END:
                return
            if number == REFUSED:
                raise Unrecoverable("the data is gone")
            tick = TimeTick(number)
            payload = str(number).encode()
            message = Received(payload, MessageId(number), tick, "v", None, 2, {})
            await deliveries.put([Batch(VChannelName("v"), None, [message], tick)])
            if step is not None:
                step.cancel()

    async def plan(self) -> Sequence["Scripted"]:
        await self.planned.wait()
        return [self]


class Step:
    """One step of a program in a task of its own, cancelled as `asyncio.timeout` would."""

    def __init__(self, reader: Scanner) -> None:
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
        async with Scanner(scripted.plan, tasks) as reader:
            step = Step(reader)
            task = await tasks.start(step.take)
            await anyio.wait_all_tasks_blocked()
            scripted.hand_over(1, then_cancel=task)
            await step.ended.wait()
            scripted.hand_over(2)
            async with asyncio.timeout(GUARD_S):
                ticks = [(await anext(reader)).closed_tick for _ in range(2)]
        assert ticks == [1, 2]


async def test_a_message_step_that_ran_out_of_time_may_be_taken_again() -> None:
    scripted = Scripted()
    async with anyio.create_task_group() as tasks, Scanner(scripted.plan, tasks) as reader:
        messages = reader.messages()
        with anyio.move_on_after(0.01):
            await anext(messages)
        scripted.hand_over(1)
        async with asyncio.timeout(GUARD_S):
            assert (await anext(messages)).payload == b"1"


async def test_a_reader_in_a_forked_process_raises_forked_client() -> None:
    scripted = Scripted()
    async with anyio.create_task_group() as tasks, Scanner(scripted.plan, tasks) as reader:
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


async def test_it_is_done_at_its_end_and_the_last_batch_may_still_be_taken() -> None:
    scripted = Scripted()
    async with anyio.create_task_group() as tasks, Scanner(scripted.plan, tasks) as scanner:
        scripted.hand_over(1)
        scripted.hand_over(END)
        async with asyncio.timeout(GUARD_S):
            await scanner.done()
            assert not scanner.error
            assert (await anext(scanner)).closed_tick == 1
            with pytest.raises(StopAsyncIteration):
                await anext(scanner)


async def test_its_error_is_known_when_it_is_done_and_raised_after_the_last_batch() -> None:
    scripted = Scripted()
    async with anyio.create_task_group() as tasks, Scanner(scripted.plan, tasks) as scanner:
        scripted.hand_over(1)
        scripted.hand_over(REFUSED)
        async with asyncio.timeout(GUARD_S):
            await scanner.done()
            assert isinstance(scanner.error, Unrecoverable)
            await anext(scanner)
            with pytest.raises(Unrecoverable):
                await anext(scanner)


async def test_closing_ends_a_step_that_waits_and_is_no_error() -> None:
    scripted = Scripted()
    async with anyio.create_task_group() as tasks, Scanner(scripted.plan, tasks) as scanner:
        tasks.start_soon(scanner.close)
        with pytest.raises(ClosedClient):
            await anext(scanner)
        await scanner.done()
        assert scanner.error is None
        await scanner.close()


async def test_the_end_of_the_client_is_an_error() -> None:
    scripted = Scripted()
    async with anyio.create_task_group() as tasks:
        scanner = Scanner(scripted.plan, tasks)
        await scanner.open()
        tasks.cancel_scope.cancel()
    assert isinstance(scanner.error, ClosedClient)
    with pytest.raises(ClosedClient):
        await anext(scanner)


async def test_one_that_is_closed_while_it_opens_does_not_open() -> None:
    scripted = Scripted()
    scripted.planned.clear()
    async with anyio.create_task_group() as tasks:
        scanner = Scanner(scripted.plan, tasks)

        async def close() -> None:
            await anyio.wait_all_tasks_blocked()
            await scanner.close()
            scripted.planned.set()

        tasks.start_soon(close)
        with pytest.raises(ClosedClient):
            await scanner.open()
        await scanner.done()


@pytest.mark.parametrize("cancelled", [True, False], ids=["while it opens", "when it is open"])
async def test_one_that_is_dropped_in_any_state_leaves_no_warning(cancelled: bool) -> None:
    scripted = Scripted()
    if cancelled:
        scripted.planned.clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                scanner = Scanner(scripted.plan, tasks)
                with anyio.move_on_after(0.001):
                    await scanner.open()
                knot: list[object] = [scanner]
                knot.append(knot)  # so that the collector finalises in any order it likes
                del scanner, knot
            gc.collect()
            tasks.cancel_scope.cancel()
        gc.collect()
    assert [str(each.message) for each in said] == []


@pytest.mark.parametrize("batches", [0, 3], ids=["nothing to give", "one taken, one waiting"])
async def test_one_that_the_collector_drops_on_another_thread_ends_its_streams(
    batches: int,
) -> None:
    scripted = Scripted()
    for number in range(1, batches + 1):
        scripted.hand_over(number)
    async with anyio.create_task_group() as tasks:
        dropped = [Scanner(scripted.plan, tasks)]
        await dropped[0].open()
        await anyio.wait_all_tasks_blocked()
        await anyio.to_thread.run_sync(dropped.clear)
        with anyio.fail_after(GUARD_S):
            await scripted.ended.wait()


async def test_one_that_a_forked_child_drops_goes_on_in_the_parent() -> None:
    scripted = Scripted()
    async with anyio.create_task_group() as tasks:
        dropped = [Scanner(scripted.plan, tasks)]
        await dropped[0].open()
        child = os.fork()
        if child == 0:
            dropped.clear()
            os._exit(7)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        await anyio.wait_all_tasks_blocked()
        assert not scripted.ended.is_set()
        scripted.hand_over(1)
        assert (await anext(dropped[0])).closed_tick == 1
        await dropped[0].close()
