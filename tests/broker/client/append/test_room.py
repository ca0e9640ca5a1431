"""Who waits for room gets it also when others leave theirs without an answer."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from broker.client import Client, Deadlines, Gathering, Message, SendLimits, Ticket, connect
from broker.client.append.batch_producer import IN_FLIGHT_FEW, MESSAGES_FEW, BatchProducer
from broker.client.errors import OutcomeUnknown
from tests.broker.client.scripted import GUARD_S, VCHANNEL, ScriptedBroker, scripted_broker

ONE = SendLimits(bytes_max=500)
LARGE = [b"x" * 600]
"""Leaves no room for another one."""
PATIENT = Deadlines(append_s=GUARD_S, call_s=GUARD_S, close_s=0.1)


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with scripted_broker() as started:
        yield started


async def has_a_waiter(log: Client) -> BatchProducer:
    """The producer, once someone waits for room."""
    while not any(it._for_room for it in log._appends._batches.all()):
        await anyio.lowlevel.checkpoint()
    (producer,) = log._appends._batches.all()
    return producer


def stored(broker: ScriptedBroker, messages: int) -> bool:
    return len(broker.log) == messages


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def test_an_append_that_was_cancelled_before_a_stream_opened_leaves_its_room(
    broker: ScriptedBroker,
) -> None:
    broker.serving = False
    async with (
        connect(broker.address, limits=ONE, deadlines=PATIENT) as log,
        asyncio.TaskGroup() as tasks,
    ):
        held = tasks.create_task(log.append_batch(VCHANNEL, LARGE))
        waiting = tasks.create_task(log.append_batch(VCHANNEL, [b"it"]))
        await has_a_waiter(log)
        await cancelled(held)
        broker.serving = True
        broker.announce()
        await waiting
    assert [it.body[-2:] for it in broker.log] == [b"it"]


async def test_an_append_that_was_cancelled_leaves_its_room_though_no_stream_opens(
    broker: ScriptedBroker,
) -> None:
    broker.serving = False
    async with (
        connect(broker.address, limits=ONE, deadlines=PATIENT) as log,
        asyncio.TaskGroup() as tasks,
    ):
        log._network.open_s = 0.1
        held = tasks.create_task(log.append_batch(VCHANNEL, LARGE))
        waiting = tasks.create_task(log.append_batch(VCHANNEL, [b"it"]))
        producer = await has_a_waiter(log)
        await cancelled(held)
        with anyio.fail_after(GUARD_S / 2):
            while producer._for_room:
                await anyio.lowlevel.checkpoint()
        assert not waiting.done()
        broker.serving = True
        broker.announce()


async def test_an_append_whose_outcome_is_unknown_leaves_its_room(broker: ScriptedBroker) -> None:
    broker.lose_requests = 1
    async with connect(broker.address, limits=ONE, deadlines=PATIENT, resend=False) as log:
        lost, other = await asyncio.gather(
            log.append_batch(VCHANNEL, LARGE),
            log.append_batch(VCHANNEL, [b"it"]),
            return_exceptions=True,
        )
    assert isinstance(lost, OutcomeUnknown)
    assert not isinstance(other, BaseException)


async def test_a_message_that_leaves_an_open_batch_leaves_its_room(broker: ScriptedBroker) -> None:
    broker.silent = True
    few = IN_FLIGHT_FEW * MESSAGES_FEW
    async with (
        connect(
            broker.address,
            limits=SendLimits(appends_max=few + 1),
            gathering=Gathering(linger_ms=1000 * GUARD_S),
            deadlines=PATIENT,
        ) as log,
        asyncio.TaskGroup() as tasks,
    ):
        tickets = list[Ticket]()
        for sent in range(MESSAGES_FEW, few + 1, MESSAGES_FEW):
            tickets += [await log.append_soon(VCHANNEL, Message(b"a")) for _ in range(MESSAGES_FEW)]
            await broker.until(partial(stored, broker, sent))
        last = await log.append_soon(VCHANNEL, Message(b"last"))
        waiting = tasks.create_task(log.append_soon(VCHANNEL, Message(b"it")))
        producer = await has_a_waiter(log)
        last.cancel()
        [(header, batch)] = producer._open.items()
        producer._lingered(header, batch)
        with anyio.fail_after(GUARD_S / 2):
            ticket = await waiting
        log.abort()
    await asyncio.gather(*tickets, ticket, return_exceptions=True)
